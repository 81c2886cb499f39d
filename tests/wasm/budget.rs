//! What a request costs: instructions of weir.wasm, counted by the interpreter, and calls of the host. Both are the same on every
//! machine, so a request that gets dearer is noticed here, whatever the machine's mood.

use super::Wasm;
use crate::host::scenarios::{GREETED, allowed, reply};
use crate::host::worker::{Vm, Worker};
use std::sync::atomic::Ordering;

/// Requests before and while it is measured.
const WARM: u32 = 100;
const MEASURED: u32 = 100;
/// How far a request may be from its budget before that has to be changed, which is to say so.
const TOLERANCE_PERCENT: u64 = 10;

const RULE: &str =
    r#""rules":[{"name":"r","match":{"path":{"prefix":"/v1"}},"key":["header:x-api-key"],"limits":["1000000/s"]}]"#;

fn with_redis() -> String {
    format!(r#"{{"store":{{"cluster":"weir-redis"}},{RULE}}}"#)
}

fn request(worker: &mut Worker<Wasm>, path: &[u8]) -> u32 {
    worker.request(&[
        (":method", b"GET"),
        (":authority", b"api.example.com"),
        (":path", path),
        ("x-api-key", b"acme"),
        ("accept", b"application/json, text/plain, */*"),
        ("accept-encoding", b"gzip, deflate, br"),
        ("accept-language", b"en-GB,en;q=0.9,de;q=0.8"),
        ("cookie", b"session=8f14e45fceea167a5a36dedd4bea2543; theme=dark"),
        ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("user-agent", b"Mozilla/5.0 (X11; Linux x86_64; rv:133.0) Gecko/20100101 Firefox/133.0"),
    ])
}

/// The rest of a request that goes on.
fn answered(worker: &mut Worker<Wasm>, id: u32) {
    worker.response(id, &[("content-type", "application/json")]);
    worker.gone(id);
}

/// Instructions and calls of the host for one of these requests.
fn cost(worker: &mut Worker<Wasm>, mut one: impl FnMut(&mut Worker<Wasm>)) -> (u64, u64) {
    (0..WARM).for_each(|_| one(worker));
    let so_far = |worker: &mut Worker<Wasm>| {
        (u64::MAX - worker.vm.store.get_fuel().unwrap(), worker.vm.host_calls.load(Ordering::Relaxed))
    };
    let before = so_far(worker);
    (0..MEASURED).for_each(|_| one(worker));
    let after = so_far(worker);
    ((after.0 - before.0) / u64::from(MEASURED), (after.1 - before.1) / u64::from(MEASURED))
}

/// What is to be said of a cost that isn't within its budget.
fn off((what, (instructions, calls), budget): (&str, (u64, u64), (u64, u64))) -> Option<String> {
    let within = instructions.abs_diff(budget.0) * 100 <= budget.0 * TOLERANCE_PERCENT && calls == budget.1;
    (!within).then(|| format!("{what}: {instructions} instructions and {calls} calls of the host, not {budget:?}"))
}

#[test]
fn a_request_costs_what_is_written_down_here() {
    let mut worker = Worker::<Wasm>::start(&format!("{{{RULE}}}"));
    let none = cost(&mut worker, |worker| {
        let id = request(worker, b"/static/logo.svg");
        answered(worker, id);
    });
    let local = cost(&mut worker, |worker| {
        let id = request(worker, b"/v1/orders?limit=50");
        assert_eq!(worker.status(id), 200);
        answered(worker, id);
    });
    let mut worker = Worker::<Wasm>::start(&with_redis());
    let mut answer = [GREETED, &allowed()].concat();
    let redis = cost(&mut worker, |worker| {
        let id = request(worker, b"/v1/orders?limit=50");
        worker.turn();
        worker.receive(&answer);
        answer = allowed();
        assert_eq!(worker.status(id), 200);
        answered(worker, id);
        worker.vm.host(|host| host.sent.clear());
    });
    let id = request(&mut worker, b"/v1/orders");
    worker.turn();
    worker.receive(&reply(0, 0, 60_000, 60_000));
    assert_eq!(worker.status(id), 429);
    let denied = cost(&mut worker, |worker| {
        let id = request(worker, b"/v1/orders?limit=50");
        assert_eq!(worker.status(id), 429);
        worker.gone(id);
    });
    let leased = with_redis().replace("1000000/s", "1000000/min fixed_window");
    let leased = leased.replace(r#""key""#, r#""lease":{"max":10000,"every":"5s"},"key""#);
    let mut worker = Worker::<Wasm>::start(&leased);
    // Nothing is left to lease until Redis says so, and then as much as came before.
    let mut answer = [GREETED, &reply(1, 0, 0, 30_000)].concat();
    for left in [0; 400].into_iter().chain([500_000; 3]) {
        let id = request(&mut worker, b"/v1/orders");
        worker.turn();
        worker.receive(&answer);
        answered(&mut worker, id);
        answer = reply(1, left, 0, 30_000);
        worker.pass_ms(1);
    }
    worker.receive(&answer); // for the lease that the last one has made wanted
    let leased = cost(&mut worker, |worker| {
        let id = request(worker, b"/v1/orders?limit=50");
        worker.turn();
        assert_eq!(worker.status(id), 200);
        answered(worker, id);
    });
    assert_eq!(worker.vm.host(|host| host.metric("weir.rule.r.lease_allowed")), i64::from(WARM + MEASURED));
    let costs = [
        ("no rule applies", none, (4_180, 4)),
        ("decided locally", local, (18_996, 16)),
        ("decided by Redis", redis, (25_656, 26)),
        ("let in by a lease", leased, (15_755, 14)),
        ("denied without asking", denied, (21_452, 12)),
    ];
    let off: Vec<String> = costs.into_iter().filter_map(off).collect();
    assert!(off.is_empty(), "if that is meant, write it down here: {off:#?}");
}
