//! The local buckets' slots in the host's shared data.

use crate::host;
use crate::metrics::Metrics;
use weir_core::local::{SharedData, Unavailable};

/// What stands for the number of a write that hasn't happened: no key gets that far.
pub(crate) const NEVER_WRITTEN: u32 = u32::MAX;

/// The slots, and who counts those that are taken.
pub(crate) struct Slots<'w> {
    pub(crate) metrics: &'w Metrics,
}

impl SharedData for Slots<'_> {
    fn read(&self, slot: u32) -> Result<(Vec<u8>, u32), Unavailable> {
        let value = host::shared_data(&slot_key(slot)).map_err(|host::Refused| Unavailable)?;
        Ok(value.unwrap_or((Vec::new(), NEVER_WRITTEN)))
    }

    fn write(&self, slot: u32, bytes: &[u8], read: u32) -> Result<bool, Unavailable> {
        let written = host::set_shared_data(&slot_key(slot), bytes, read).map_err(|host::Refused| Unavailable)?;
        if written && read == NEVER_WRITTEN {
            self.metrics.slot_taken();
        }
        Ok(written)
    }
}

fn slot_key(slot: u32) -> String {
    format!("weir.local.{slot}")
}
