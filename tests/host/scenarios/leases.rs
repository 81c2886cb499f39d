//! Subjects that are paid for ahead.

use super::*;

/// A worker of whose subject `a` Redis has just said that a thousand requests are left; it has met it often enough to lease it.
fn met_often<V: Vm>() -> Worker<V> {
    let configuration = with_redis(r#","lease":{"max":50}"#).replace("100/min burst 3", "2000/min fixed_window");
    let mut worker = connected::<V>(&configuration);
    let ids: Vec<u32> = (0..10).map(|_| worker.request_of("a")).collect();
    assert_eq!(worker.sent().len(), 10);
    worker.receive(&reply(1, 1000, 0, 30_000).repeat(10));
    assert_eq!(statuses(&mut worker, &ids), [200; 10]);
    worker
}

/// A request of `a`: its status.
fn one<V: Vm>(worker: &mut Worker<V>) -> u32 {
    let id = worker.request_of("a");
    worker.status(id)
}

fn counted<V: Vm>(worker: &mut Worker<V>, name: &str) -> i64 {
    worker.vm.host(|host| host.metric(&format!("weir.rule.r.{name}")))
}

pub(crate) fn what_a_lease_has_paid_for_is_let_in_without_asking<V: Vm>() {
    let mut worker = met_often::<V>();
    let first = worker.request_of("a");
    assert_eq!(worker.sent(), ["EVALSHA rl:{r:a}:fw:60000"; 2], "for itself, and for the lease");
    worker.receive(&[reply(1, 989, 0, 29_000), reply(1, 978, 0, 29_000)].concat());
    assert_eq!(worker.status(first), 200);
    let before = counted(&mut worker, "allowed");
    let id = worker.request_of("a");
    assert_eq!(filter_state(&mut worker, id)[1], "weir_source=lease");
    let headers = worker.response(id, &[]);
    assert_eq!(value(&headers, "ratelimit-remaining"), Some("988"), "978 in Redis and 10 that are held");
    assert_eq!((0..7).map(|_| one(&mut worker)).collect::<Vec<_>>(), [200; 7]);
    assert_eq!(worker.sent(), ["EVALSHA rl:{r:a}:fw:60000"], "little is left: the next lease, and nothing else");
    assert_eq!((one(&mut worker), one(&mut worker), one(&mut worker)), (200, 200, 200));
    assert_eq!((counted(&mut worker, "lease_allowed"), counted(&mut worker, "allowed") - before), (11, 11));
    assert_eq!(one(&mut worker), 0, "it is spent, and the next one isn't there yet: this one asks");
    let other = worker.request_of("b");
    assert_eq!((worker.status(other), worker.sent().len()), (0, 2), "and so does another client");
    worker.receive(&[reply(1, 960, 0, 28_000), reply(1, 959, 0, 28_000), allowed()].concat());
    assert_eq!((one(&mut worker), worker.status(other)), (200, 200));
}

pub(crate) fn a_lease_that_fails_fails_no_request<V: Vm>() {
    for answer in [&b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"[..], &denied()] {
        let mut worker = met_often::<V>();
        let first = worker.request_of("a");
        assert_eq!(worker.sent().len(), 2);
        worker.receive(&[&reply(1, 989, 0, 29_000)[..], answer].concat());
        assert_eq!(worker.status(first), 200);
        let ids = [worker.request_of("a"), worker.request_of("a")];
        assert_eq!(worker.sent().len(), 2, "each asks for itself");
        worker.receive(&reply(1, 988, 0, 29_000).repeat(2));
        assert_eq!(statuses(&mut worker, &ids), [200, 200]);
        assert_eq!(counted(&mut worker, "lease_allowed"), 0);
        assert_eq!((counted(&mut worker, "denied"), counted(&mut worker, "errors")), (0, 0));
    }
}

pub(crate) fn what_is_held_is_spent_while_redis_is_away<V: Vm>() {
    let mut worker = met_often::<V>();
    worker.request_of("a");
    worker.sent();
    worker.receive(&[reply(1, 989, 0, 29_000), reply(1, 978, 0, 29_000)].concat());
    worker.close();
    assert_eq!((0..11).map(|_| one(&mut worker)).collect::<Vec<_>>(), [200; 11]);
    assert_eq!((counted(&mut worker, "lease_allowed"), counted(&mut worker, "errors")), (11, 0));
    let id = worker.request_of("a");
    worker.pass_ms(100);
    assert_eq!((worker.status(id), counted(&mut worker, "errors")), (200, 1), "and then the rule's `on_error` holds");
}
