//! What Redis has just denied, and is denied without it.

use super::*;

fn retry_after<V: Vm>(worker: &mut Worker<V>, id: u32) -> (u32, Option<String>) {
    (worker.status(id), value(&answer(worker, id).headers, "retry-after").map(str::to_owned))
}

pub(crate) fn the_like_of_what_was_denied_is_denied_at_once<V: Vm>() {
    let mut worker = connected::<V>(&with_redis(""));
    let first = worker.request_of("a");
    worker.receive(&denied());
    assert_eq!(retry_after(&mut worker, first), (429, Some("2".to_owned())));
    worker.sent();
    worker.pass_ms(450);
    let second = worker.request_of("a");
    assert_eq!(retry_after(&mut worker, second), (429, Some("1".to_owned())), "0.95 s, rounded up");
    assert_eq!(filter_state(&mut worker, second)[1], "weir_source=denial_cache");
    let other = worker.request_of("b");
    assert_eq!(worker.status(other), 0, "somebody else is asked for");
    assert_eq!(worker.sent().len(), 1);
    worker.receive(&allowed());
    let counted =
        ["denied", "cache_denied", "allowed"].map(|name| worker.vm.host(|host| host.metric(&format!("weir.rule.r.{name}"))));
    assert_eq!(counted, [2, 1, 2]);
    worker.pass_ms(60);
    let asks = requests_of(&mut worker, "a", 3);
    assert_eq!(
        (statuses(&mut worker, &asks), worker.sent().len()),
        (vec![0, 429, 429], 1),
        "one in the middle of its time asks"
    );
    worker.receive(&allowed());
    assert_eq!(worker.status(asks[0]), 200);
    let id = worker.request_of("a");
    assert_eq!(worker.status(id), 0, "and what it is told holds");
}

fn requests_of<V: Vm>(worker: &mut Worker<V>, key: &str, count: usize) -> Vec<u32> {
    (0..count).map(|_| worker.request_of(key)).collect()
}

pub(crate) fn a_rule_may_ask_every_time<V: Vm>() {
    let mut worker = connected::<V>(&with_redis(r#","cache_denials":"0s""#));
    for _ in 0..3 {
        let id = worker.request_of("a");
        assert_eq!((worker.status(id), worker.sent().len()), (0, 1));
        worker.receive(&denied());
        assert_eq!(worker.status(id), 429);
    }
}

pub(crate) fn a_denial_stands_while_redis_is_away<V: Vm>() {
    let mut worker = connected::<V>(&with_redis_or_503());
    let id = worker.request_of("a");
    worker.receive(&denied());
    assert_eq!(worker.status(id), 429);
    worker.close();
    let ids = [worker.request_of("a"), worker.request_of("b")];
    assert_eq!(worker.status(ids[0]), 429);
    worker.pass_ms(100);
    assert_eq!(worker.status(ids[1]), 503);
}
