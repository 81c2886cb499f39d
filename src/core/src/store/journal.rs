//! What a log is told of the way to Redis: a line when it is gone and one when it is back, and not one for each time where it
//! comes and goes.

use super::Failure;

/// For how long after a line that Redis is away there is no other, in microseconds.
const QUIET_US: u64 = 10_000_000;

/// Keeps back lines that would be too many.
#[derive(Debug, Default)]
pub struct Journal {
    /// When it was last told that Redis is away.
    told_us: Option<u64>,
    /// Why it is away, where that hasn't been told.
    untold: Option<Failure>,
    /// How often it has gone away since that was told.
    times: u32,
}

/// A line that Redis is away.
#[derive(Debug, PartialEq, Eq)]
pub struct Away {
    /// Why.
    pub failure: Failure,
    /// How often it has gone away since the line before, this time included.
    pub times: u32,
}

impl Journal {
    /// Redis is away. The line to write now, if it is time for one.
    pub fn away(&mut self, failure: Failure, now_us: u64) -> Option<Away> {
        self.untold = Some(failure);
        self.times = self.times.saturating_add(1);
        self.due(now_us)
    }

    /// Redis is back; whether to write that.
    pub fn back(&mut self) -> bool {
        // Where it wasn't told that it is away, it needn't be that it is back.
        self.untold.take().is_none()
    }

    /// The line that has been kept back until now, where Redis is still away.
    pub fn due(&mut self, now_us: u64) -> Option<Away> {
        if self.told_us.is_some_and(|told_us| now_us.saturating_sub(told_us) < QUIET_US) {
            return None;
        }
        let failure = self.untold.take()?;
        self.told_us = Some(now_us);
        Some(Away { failure, times: std::mem::take(&mut self.times) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn away(times: u32) -> Option<Away> {
        Some(Away { failure: Failure::Timeout, times })
    }

    #[test]
    fn it_is_told_when_redis_goes_and_when_it_comes() {
        let mut journal = Journal::default();
        assert!(journal.back(), "the first time");
        assert_eq!(journal.away(Failure::Timeout, 5), away(1));
        assert!(journal.back());
        assert_eq!(journal.due(QUIET_US * 9), None);
        assert_eq!(journal.away(Failure::Timeout, QUIET_US * 9), away(1));
    }

    #[test]
    fn a_way_that_comes_and_goes_is_told_once_in_so_long_and_how_often_it_went() {
        let mut journal = Journal::default();
        let mut told = Vec::new();
        for second in 0..60_u64 {
            told.extend(journal.away(Failure::Timeout, second * 1_000_000));
            told.extend(journal.back().then_some(Away { failure: Failure::Disconnected, times: 0 }));
        }
        let away: Vec<u32> = told.iter().filter(|line| line.times > 0).map(|line| line.times).collect();
        assert_eq!(away, [1, 10, 10, 10, 10, 10]);
        assert_eq!(told.len(), 12, "and each time that it is back");
    }

    #[test]
    fn what_was_kept_back_is_told_where_redis_stays_away() {
        let mut journal = Journal::default();
        assert_eq!(journal.away(Failure::Disconnected, 0), Some(Away { failure: Failure::Disconnected, times: 1 }));
        assert!(journal.back());
        assert_eq!(journal.away(Failure::Timeout, 1), None);
        assert_eq!(journal.due(QUIET_US - 1), None);
        assert_eq!(journal.due(QUIET_US), away(1));
        assert_eq!(journal.due(QUIET_US * 5), None, "once");
        assert!(journal.back());
    }
}
