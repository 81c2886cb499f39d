//! Requests that a leaky bucket lets in later.

use super::*;

/// A rule whose requests leave one every 100 ms.
fn one_by_one() -> String {
    with_redis(r#","on_error":"deny","limits":["10/s leaky_bucket"]"#).replace(r#""limits":["100/min burst 3"],"#, "")
}

fn later(delay_ms: i64) -> Vec<u8> {
    reply(1, 2, delay_ms, 600)
}

pub(crate) fn a_request_is_held_back_until_its_time_and_goes_on<V: Vm>() {
    let mut worker = connected::<V>(&one_by_one());
    let id = worker.request_of("a");
    worker.receive(&later(250));
    worker.pass_ms(249);
    assert_eq!(worker.status(id), 0);
    worker.pass_ms(2);
    assert_eq!(worker.status(id), 200);
    let headers = worker.response(id, &[]);
    assert_eq!(value(&headers, "ratelimit-remaining"), Some("2"));
    assert_eq!(
        worker.vm.host(|host| ["allowed", "delayed"].map(|name| host.metric(&format!("weir.rule.r.{name}")))),
        [2, 1]
    );
    worker.gone(id);
    worker.pass_ms(100);
    assert_eq!(worker.vm.host(|host| host.tick_ms), 0, "nobody waits for a tick");
}

pub(crate) fn of_many_held_requests_each_goes_at_its_own_time<V: Vm>() {
    let mut worker = connected::<V>(&one_by_one());
    let ids = requests(&mut worker, 100);
    for place in 0..100 {
        worker.receive(&later((100 - place) * 7)); // the last one goes first
    }
    for passed in 1..=700 {
        worker.pass_ms(1);
        let gone = statuses(&mut worker, &ids).iter().filter(|status| **status == 200).count();
        assert!((passed - 1) / 7 <= gone && gone <= passed / 7, "{gone} after {passed} ms");
    }
    assert_eq!(statuses(&mut worker, &ids), [200; 100]);
}

pub(crate) fn a_client_that_goes_away_while_it_is_held_back_is_forgotten<V: Vm>() {
    let mut worker = connected::<V>(&one_by_one());
    let ids = requests(&mut worker, 3);
    worker.receive(&later(300).repeat(3));
    worker.gone(ids[0]);
    worker.over_in_vm(ids[1]); // still there in the host
    worker.pass_ms(310);
    assert_eq!(worker.status(ids[1]), 0, "it isn't acted for");
    assert_eq!(worker.status(ids[2]), 200);
}

pub(crate) fn calls_are_still_timed_out_while_a_request_is_held_back_for_long<V: Vm>() {
    let mut worker = connected::<V>(&one_by_one());
    let held = worker.request_of("a");
    worker.receive(&later(9000));
    worker.pass_ms(1000);
    let id = worker.request_of("b");
    worker.pass_ms(70);
    assert_eq!((worker.status(held), worker.status(id)), (0, 503), "after 50 ms without a reply");
    worker.pass_ms(8000);
    assert_eq!(worker.status(held), 200);
}

pub(crate) fn more_requests_than_can_be_held_back_are_denied<V: Vm>() {
    const MOST: usize = 8192;
    let mut worker = connected::<V>(&one_by_one());
    let held = requests(&mut worker, MOST);
    worker.receive(&later(5000).repeat(MOST));
    worker.turn();
    let id = worker.request_of("one too many");
    worker.receive(&later(5001));
    let refused = answer(&mut worker, id);
    assert_eq!((refused.status, value(&refused.headers, "retry-after")), (429, Some("6")));
    worker.gone(held[0]);
    let id = worker.request_of("there is room again");
    worker.receive(&later(5001));
    worker.pass_ms(5010);
    assert_eq!(worker.status(id), 200);
    assert!(held[1..].iter().all(|id| worker.status(*id) == 200));
}
