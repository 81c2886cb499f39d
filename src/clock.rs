//! Time, read once at the edge of each callback.

use crate::host;
use std::cell::Cell;
use weir_core::flow::Now;

/// A worker's clock.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    last_us: Cell<u64>,
    ahead_us: Cell<u64>,
}

impl Clock {
    /// The host has the wall's clock alone. Where that steps back, the microseconds go on from where they were.
    pub(crate) fn now(&self) -> Now {
        let wall_us = host::now_ns() / 1000;
        let last_us = self.last_us.get();
        if wall_us.saturating_add(self.ahead_us.get()) < last_us {
            self.ahead_us.set(last_us.saturating_sub(wall_us));
        }
        let us = wall_us.saturating_add(self.ahead_us.get());
        self.last_us.set(us);
        Now { wall_ms: wall_us / 1000, us }
    }
}
