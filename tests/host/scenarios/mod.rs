//! What the filter does on its host. Each scenario runs on the native build and on weir.wasm.

pub(crate) mod answers;
pub(crate) mod any_order;
pub(crate) mod bridge;
pub(crate) mod callouts;
pub(crate) mod clients;
pub(crate) mod configuration;
pub(crate) mod denials;
pub(crate) mod failures;
pub(crate) mod held;
pub(crate) mod keys;
pub(crate) mod leases;
pub(crate) mod local;
pub(crate) mod replies;
pub(crate) mod rules;
pub(crate) mod turns;

use super::worker::{Outcome, Vm, Worker};
use super::{Answer, Host, Process};
use std::sync::Arc;

/// Makes a test of each scenario on a kind of VM. (One that isn't listed here is an unused function.)
macro_rules! all {
    ($vm:ty) => {
        $crate::host::scenarios::all!($vm, answers:
            a_request_waits_for_redis_and_is_let_in
            a_denied_request_is_told_its_wait
            a_request_that_can_never_pass_is_told_no_wait
            a_request_is_decided_once_all_its_calls_are_settled
            a_request_is_let_in_by_all_its_rules_or_not_at_all
            requests_that_no_rule_is_for_pass_untouched
        );
        $crate::host::scenarios::all!($vm, keys:
            a_missing_key_is_no_key
            a_header_is_found_whatever_its_spelling
            bytes_that_are_not_utf8_are_a_header_like_any_other
            any_bytes_are_a_key_and_no_more
            a_port_is_no_part_of_an_address
            every_key_has_one_hash_tag
            a_query_does_not_get_around_a_rule
        );
        $crate::host::scenarios::all!($vm, clients:
            the_client_is_the_entry_that_a_trusted_proxy_wrote
            a_cookie_is_found_among_pieces_of_any_kind
            a_bearer_token_is_read_in_every_spelling
            a_prefix_ends_where_a_segment_does
            a_part_of_the_path_that_clients_choose_makes_no_new_bucket
            a_header_that_proxies_add_to_counts_as_a_whole
            a_credential_is_nowhere_to_be_read
            a_parameter_is_found_and_decoded
            spellings_of_a_path_and_a_host_are_one
        );
        $crate::host::scenarios::all!($vm, rules:
            a_route_says_which_rules_apply_at_what_cost_and_with_which_limits
            limits_of_a_route_leave_the_bucket_of_the_others_alone
            faulty_metadata_of_a_route_fails_no_request_and_is_told_once
            requests_are_exempt_or_blocked_before_any_rule
            a_rule_in_shadow_is_told_and_nothing_comes_of_it
            a_part_of_the_requests_is_enforced_on
            expressions_are_the_hosts
            live_overrides_are_read_and_read_again
        );
        $crate::host::scenarios::all!($vm, replies:
            replies_are_the_same_wherever_they_are_cut
            a_script_that_redis_does_not_know_is_brought_along
            a_reply_of_another_kind_fails_its_own_request_alone
            bytes_that_are_no_reply_end_the_stream
            a_late_reply_is_nobody_elses
            nonsense_from_redis_never_reaches_a_client
            any_bytes_from_redis_settle_requests_or_fail_them
        );
        $crate::host::scenarios::all!($vm, turns:
            many_replies_at_once_are_answered_in_turns
            the_commands_of_a_turn_are_one_message
            many_failures_at_once_are_answered_in_turns
            more_requests_than_can_wait_are_all_answered
            a_host_that_gives_no_queue_is_made_do_without
        );
        $crate::host::scenarios::all!($vm, failures:
            a_host_that_opens_no_stream_is_a_failure
            a_stream_that_ends_while_it_is_written_fails_its_calls
            commands_that_wait_for_a_turn_are_not_sent_on_another_stream
            a_redis_that_keeps_silent_is_not_waited_for_again
            a_redis_that_refuses_is_asked_once_a_second
            a_redis_that_is_back_decides_at_once
            a_host_that_gives_nothing_else_does_no_harm
            a_worker_without_requests_keeps_quiet
            a_clock_that_steps_back_holds_no_request_up
            gauges_come_back_to_nothing
            a_redis_that_comes_and_goes_is_told_of_now_and_then
        );
        $crate::host::scenarios::all!($vm, any_order:
            requests_that_are_over_are_not_acted_for
            requests_that_end_before_their_turn_are_not_acted_for
            every_request_ends_once_whatever_happens
        );
        $crate::host::scenarios::all!($vm, held:
            a_request_is_held_back_until_its_time_and_goes_on
            of_many_held_requests_each_goes_at_its_own_time
            a_client_that_goes_away_while_it_is_held_back_is_forgotten
            calls_are_still_timed_out_while_a_request_is_held_back_for_long
            more_requests_than_can_be_held_back_are_denied
        );
        $crate::host::scenarios::all!($vm, local:
            writes_that_others_get_ahead_of_are_tried_again
            eight_workers_at_once_admit_exactly_the_limit
            a_hundred_thousand_subjects_take_no_more_room_and_one_is_still_limited
            a_subject_takes_one_place_however_long_it_stays
            a_failed_redis_leaves_the_limit_in_force
        );
        $crate::host::scenarios::all!($vm, configuration:
            a_bad_configuration_is_refused_with_a_line_for_each_fault
            a_struct_is_a_configuration
            a_new_configuration_takes_over_and_leaves_nothing_of_the_old_one
        );
        $crate::host::scenarios::all!($vm, callouts:
            a_request_waits_for_its_callout_and_is_let_in
            the_calls_of_a_request_are_one_pipeline
            a_script_that_a_server_does_not_know_is_brought_along
            a_callout_that_comes_to_nothing_is_a_failure_of_its_own_request
            a_request_that_is_over_is_not_acted_for_and_its_answer_counts
            a_callout_that_never_ends_is_timed_out
            a_server_that_is_away_is_looked_for_and_found
            the_password_is_in_the_environment
            every_request_ends_once_whatever_a_server_says
        );
        $crate::host::scenarios::all!($vm, denials:
            the_like_of_what_was_denied_is_denied_at_once
            a_rule_may_ask_every_time
            a_denial_stands_while_redis_is_away
        );
        $crate::host::scenarios::all!($vm, leases:
            what_a_lease_has_paid_for_is_let_in_without_asking
            a_lease_that_fails_fails_no_request
            what_is_held_is_spent_while_redis_is_away
        );
        $crate::host::scenarios::all!($vm, bridge:
            the_bridge_takes_frames_off_and_puts_them_on
        );
    };
    ($vm:ty, $module:ident: $($name:ident)*) => {$(
        #[test]
        fn $name() {
            $crate::host::scenarios::$module::$name::<$vm>();
        }
    )*};
}
pub(crate) use all;

/// The reply to the greeting of a new stream.
pub(crate) const GREETED: &[u8] = b"*4\r\n:1\r\n:1\r\n:0\r\n:0\r\n";
const NOSCRIPT: &[u8] = b"-NOSCRIPT No matching script.\r\n";

pub(crate) fn reply(status: i64, remaining: i64, retry_ms: i64, reset_ms: i64) -> Vec<u8> {
    format!("*4\r\n:{status}\r\n:{remaining}\r\n:{retry_ms}\r\n:{reset_ms}\r\n").into_bytes()
}

pub(crate) fn allowed() -> Vec<u8> {
    reply(1, 2, 0, 600)
}

fn denied() -> Vec<u8> {
    reply(0, 0, 1400, 1800)
}

/// A rule by API key, with these fields.
fn rule(fields: &str) -> String {
    format!(r#""rules":[{{"name":"r","key":["header:x-api-key"],"limits":["100/min burst 3"]{fields}}}]"#)
}

fn with_redis(fields: &str) -> String {
    format!(r#"{{"store":{{"cluster":"weir-redis"}},{}}}"#, rule(fields))
}

/// With Redis, and 503 where it fails: so it shows.
fn with_redis_or_503() -> String {
    with_redis(r#","on_error":"deny""#)
}

fn local(fields: &str) -> String {
    format!("{{{}}}", rule(fields))
}

/// A worker that has reached Redis.
fn connected<V: Vm>(configuration: &str) -> Worker<V> {
    connected_with(configuration, 1)
}

/// The same where each request makes so many calls.
fn connected_with<V: Vm>(configuration: &str, calls: usize) -> Worker<V> {
    let mut worker = Worker::start(configuration);
    let first = worker.request_of("first");
    worker.turn();
    worker.receive(&[GREETED, &allowed().repeat(calls)].concat());
    assert_eq!(worker.status(first), 200);
    worker.gone(first);
    worker.sent();
    worker
}

/// Requests of as many clients.
fn requests<V: Vm>(worker: &mut Worker<V>, count: usize) -> Vec<u32> {
    (0..count).map(|i| worker.request_of(&format!("k{i}"))).collect()
}

fn statuses<V: Vm>(worker: &mut Worker<V>, ids: &[u32]) -> Vec<u32> {
    ids.iter().map(|id| worker.status(*id)).collect()
}

fn value<'h>(headers: &'h [(String, String)], name: &str) -> Option<&'h str> {
    let mut values = headers.iter().filter(|(given, _)| given == name).map(|(_, value)| value.as_str());
    let value = values.next();
    assert_eq!(values.next(), None, "{name} is there once");
    value
}

fn answer<V: Vm>(worker: &mut Worker<V>, id: u32) -> Answer {
    match worker.outcome(id) {
        Outcome::Answered(answer) => answer,
        outcome => panic!("{outcome:?}"),
    }
}

fn filter_state<V: Vm>(worker: &mut Worker<V>, id: u32) -> Vec<String> {
    let mut state: Vec<String> = worker
        .vm
        .host(|host| host.requests[&id].filter_state.iter().map(|(name, value)| format!("{name}={value}")).collect());
    state.sort();
    state
}
