//! Stops asking a store that keeps failing, so that requests don't wait for nothing.

use crate::config;

/// A circuit breaker: after so many failures in a row it is open for a while, then it lets one call through as a probe.
#[derive(Debug)]
pub struct Breaker {
    settings: config::Breaker,
    failures: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open { until_us: u64 },
    Probing,
}

impl Breaker {
    /// A closed one.
    pub fn new(settings: config::Breaker) -> Breaker {
        Breaker { settings, failures: 0, state: State::Closed }
    }

    /// Whether a call may go out now. The first one after the open time is the probe; until it is settled no other may.
    pub fn admits(&mut self, now_us: u64) -> bool {
        match self.state {
            State::Closed => true,
            State::Open { until_us } if now_us >= until_us => {
                self.state = State::Probing;
                true
            }
            State::Open { .. } | State::Probing => false,
        }
    }

    /// The store works.
    pub fn succeeded(&mut self) {
        self.failures = 0;
        self.state = State::Closed;
    }

    /// A call failed. Whether that has opened the breaker.
    pub fn failed(&mut self, now_us: u64) -> bool {
        self.failures = self.failures.saturating_add(1);
        let opens = match self.state {
            State::Closed => self.failures >= self.settings.failures,
            State::Probing => true,
            State::Open { .. } => false,
        };
        if opens {
            let until_us = now_us.saturating_add(self.settings.open_ms.saturating_mul(1000));
            self.state = State::Open { until_us };
        }
        opens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker() -> Breaker {
        Breaker::new(config::Breaker { failures: 3, open_ms: 1000 })
    }

    fn fail(breaker: &mut Breaker, times: u32) -> Vec<bool> {
        (0..times).map(|_| breaker.failed(0)).collect()
    }

    #[test]
    fn failures_in_a_row_open_it_and_a_success_between_them_starts_over() {
        let mut b = breaker();
        assert_eq!(fail(&mut b, 2), [false, false]);
        b.succeeded();
        assert_eq!(fail(&mut b, 3), [false, false, true]);
        assert!(!b.admits(999_999));
    }

    #[test]
    fn one_probe_goes_out_after_the_open_time_and_settles_it() {
        let mut b = breaker();
        fail(&mut b, 3);
        assert!(b.admits(1_000_000));
        assert!(!b.admits(1_000_000), "a second probe");
        assert!(b.failed(1_000_000), "a failed probe opens it again");
        assert!(!b.admits(1_999_999));
        assert!(b.admits(2_000_000));
        b.succeeded();
        assert!(b.admits(2_000_000));
        assert!(b.admits(2_000_000));
    }

    #[test]
    fn late_failures_while_open_do_not_prolong_it() {
        let mut b = breaker();
        fail(&mut b, 3);
        assert!(!b.failed(900_000));
        assert!(b.admits(1_000_000));
    }
}
