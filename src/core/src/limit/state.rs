//! A limit's state, whatever its algorithm.

use super::{Algorithm, Limit, Verdict, fixed_window, leaky_bucket, sliding_log, sliding_window, token_bucket};

/// One state for all algorithms: its variants are the algorithms', each with the state of its module.
macro_rules! states {
    ($($algorithm:ident of $module:ident),*) => {
        /// What is stored of a subject under a limit.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum State {
            $(#[doc = concat!("Of [`", stringify!($module), "`].")] $algorithm($module::State)),*
        }

        impl State {
            /// What the limit says of a request that would take `cost` now, without taking it. The state of another algorithm
            /// counts as none.
            pub fn check(state: Option<&State>, limit: &Limit, now_ms: u64, cost: u64) -> Verdict {
                match limit.algorithm() {
                    $(Algorithm::$algorithm => {
                        let own = state.and_then(|state| if let State::$algorithm(own) = state { Some(own) } else { None });
                        $module::check(own.cloned(), limit, now_ms, cost)
                    })*
                }
            }

            /// Takes `cost` if the limit allows it. The second value is what is to be stored, `None` where that is as it was.
            pub fn charge(state: Option<&State>, limit: &Limit, now_ms: u64, cost: u64) -> (Verdict, Option<State>) {
                match limit.algorithm() {
                    $(Algorithm::$algorithm => {
                        let own = state.and_then(|state| if let State::$algorithm(own) = state { Some(own) } else { None });
                        let (verdict, charged) = $module::charge(own.cloned(), limit, now_ms, cost);
                        (verdict, charged.map(State::$algorithm))
                    })*
                }
            }
        }
    };
}

states!(
    TokenBucket of token_bucket,
    FixedWindow of fixed_window,
    SlidingLog of sliding_log,
    SlidingWindow of sliding_window,
    LeakyBucket of leaky_bucket
);
