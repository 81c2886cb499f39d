//! Numbers that nobody foresees well enough to dodge a rule by them, nor two workers have alike.

use std::cell::Cell;

/// SplitMix64 (Steele et al., "Fast splittable pseudorandom number generators", 2014).
#[derive(Debug)]
pub struct Dice(Cell<u64>);

impl Dice {
    /// Other seeds give other numbers.
    pub fn new(seed: u64) -> Dice {
        Dice(Cell::new(seed))
    }

    /// A number from 0 to 99.
    pub fn roll(&self) -> u8 {
        u8::try_from(self.draw() % 100).unwrap_or(0)
    }

    /// Any number.
    pub fn draw(&self) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let mixed = (self.0.get() ^ (self.0.get() >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
