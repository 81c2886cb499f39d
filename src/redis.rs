//! What a worker holds to ask Redis: the client, its stream, and the turns and ticks that it goes by.

use crate::held::Held;
use crate::host;
use crate::slots::NEVER_WRITTEN;
use std::cell::{Cell, RefCell};
use weir_core::config::Store;
use weir_core::rules::Rules;
use weir_core::store::{Away, Client, Effect, Journal, Overrides};

/// How often a number is tried to be drawn, against other workers that draw theirs.
const DRAWS: usize = 1000;

pub(crate) struct Redis {
    pub(crate) cluster: String,
    pub(crate) client: RefCell<Client>,
    pub(crate) stream: Cell<Option<u32>>,
    /// Commands that the next turn sends as one message: a message costs the host several times what a command does.
    pub(crate) outbox: RefCell<Vec<u8>>,
    /// What is put in here wakes this worker.
    queue: Option<u32>,
    /// A turn has been asked for and hasn't come yet.
    pub(crate) waking: Cell<bool>,
    pub(crate) held: RefCell<Held>,
    pub(crate) overrides: RefCell<Overrides>,
    pub(crate) journal: RefCell<Journal>,
    tick_ms: Cell<u32>,
}

impl Redis {
    pub(crate) fn new(store: &Store, rules: &Rules, seed: u64) -> Redis {
        Redis {
            cluster: store.cluster.clone(),
            client: RefCell::new(Client::new(store, seed)),
            stream: Cell::new(None),
            outbox: RefCell::default(),
            queue: draw_number().and_then(|number| host::register_queue(&format!("weir.worker.{number}"))),
            waking: Cell::new(false),
            held: RefCell::default(),
            overrides: RefCell::new(Overrides::new(rules, &store.key_prefix)),
            journal: RefCell::default(),
            tick_ms: Cell::new(0),
        }
    }

    /// Tells the client what has happened; what it wants.
    pub(crate) fn tell(&self, what: impl FnOnce(&mut Client, &mut Vec<Effect>)) -> Vec<Effect> {
        let mut effects = Vec::new();
        what(&mut self.client.borrow_mut(), &mut effects);
        effects
    }

    pub(crate) fn tell_away(&self, away: Option<Away>) {
        match away {
            None => {}
            Some(Away { failure, times: 1 }) => {
                log::warn!("weir: Redis can't be asked through cluster {}: {failure}", self.cluster);
            }
            Some(Away { failure, times }) => {
                log::warn!(
                    "weir: Redis can't be asked through cluster {}: {failure} ({times} times since it was last said)",
                    self.cluster
                );
            }
        }
    }

    /// Sends what has come together. In a turn or a tick only.
    pub(crate) fn send(&self) {
        let message = std::mem::take(&mut *self.outbox.borrow_mut());
        if let (false, Some(stream)) = (message.is_empty(), self.stream.get()) {
            // A stream that can't be written has closed, and says so in a callback of its own.
            let _ = host::send_message(stream, &message);
        }
    }

    /// Asks for a turn of the event loop in the root context.
    pub(crate) fn wake(&self) {
        if self.waking.get() {
            return;
        }
        match self.queue.map(host::enqueue) {
            Some(Ok(())) => self.waking.set(true),
            _ => self.tick_within(1),
        }
    }

    /// The next tick comes in so many milliseconds at the latest; 0: nobody waits for one.
    pub(crate) fn tick_within(&self, ms: u32) {
        if ms > 0 && (self.tick_ms.get() == 0 || self.tick_ms.get() > ms) {
            self.tick_every(ms);
        }
    }

    pub(crate) fn tick_every(&self, every_ms: u32) {
        if self.tick_ms.replace(every_ms) != every_ms {
            host::set_tick_period_ms(every_ms);
        }
    }
}

/// A number that no other worker of this process has.
fn draw_number() -> Option<u32> {
    for _ in 0..DRAWS {
        let (bytes, cas) = host::shared_data("weir.workers").ok()?.unwrap_or((Vec::new(), NEVER_WRITTEN));
        let number = bytes.try_into().map_or(0, u32::from_le_bytes).wrapping_add(1);
        if host::set_shared_data("weir.workers", &number.to_le_bytes(), cas).ok()? {
            return Some(number);
        }
    }
    None
}
