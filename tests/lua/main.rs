//! The script in a real Redis: step by step against its Rust model in virtual time, and as it is shipped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test fails by a panic"
)]

#[path = "../servers/mod.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod servers;

mod differential;
mod engines;
mod shipped;

use engines::{Engine, Valkey};
use servers::redis_cluster::Cluster;
use servers::redis_server::Redis;

/// A test of each of these functions in each engine; they take the engine and a hash tag for their keys.
macro_rules! all {
    ($($module:ident::$name:ident)*) => {
        mod in_redis {
            $(#[test] fn $name() { crate::$module::$name(&<crate::Redis as crate::Engine>::start(), stringify!($name)); })*
        }
        mod in_valkey {
            $(#[test] fn $name() { crate::$module::$name(&<crate::Valkey as crate::Engine>::start(), stringify!($name)); })*
        }
        // One cluster for all of them: it takes a second or two to form.
        #[test]
        fn in_a_cluster_of_three_all_of_it() {
            let cluster = <Cluster as Engine>::start();
            $($module::$name(&cluster, stringify!($name));)*
        }
    };
}

all! {
    differential::token_buckets_agree_with_their_model
    differential::fixed_windows_agree_with_their_model
    differential::sliding_logs_agree_with_their_model
    differential::sliding_windows_agree_with_their_model
    differential::leaky_buckets_agree_with_their_model
    differential::layers_of_all_of_them_agree_with_their_models
    shipped::it_is_known_by_its_digest_once_it_was_brought_along
    shipped::a_key_expires_when_it_counts_no_more
    shipped::a_key_without_a_ttl_gets_one
    shipped::cost_nothing_stores_nothing
    shipped::a_denied_limit_leaves_every_limit_untouched
    shipped::a_client_that_waits_as_told_is_let_in
    shipped::nothing_is_ever_in_exponent_notation
    shipped::a_key_of_another_type_is_an_error_and_nothing_is_charged
    shipped::an_integer_of_another_spelling_fails_nothing_half_way
    shipped::bad_arguments_are_an_error_and_nothing_is_charged
    shipped::sixty_four_clients_at_once_admit_exactly_the_limit
}
