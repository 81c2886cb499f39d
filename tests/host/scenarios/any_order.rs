//! Requests come, go and are answered in any order.

use super::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::Cell;

pub(crate) fn requests_that_are_over_are_not_acted_for<V: Vm>() {
    let mut worker = connected::<V>(&with_redis(""));
    let ids = requests(&mut worker, 6);
    worker.gone(ids[0]);
    worker.over_in_vm(ids[2]); // in the host it is still there
    worker.receive(&[allowed(), denied(), denied(), allowed(), denied(), allowed()].concat());
    worker.turn();
    assert!(matches!(worker.outcome(ids[2]), Outcome::Waiting), "nothing was done for it");
    let statuses: Vec<u32> = [1, 3, 4, 5].map(|i| worker.status(ids[i])).to_vec();
    assert_eq!(statuses, [429, 200, 429, 200], "each has its own reply");
    worker.close();
    worker.turn();
}

pub(crate) fn requests_that_end_before_their_turn_are_not_acted_for<V: Vm>() {
    let mut worker = connected::<V>(&with_redis(""));
    let ids = requests(&mut worker, 40);
    worker.receive(&denied().repeat(40));
    worker.over_in_vm(ids[35]);
    worker.gone(ids[36]);
    worker.turn();
    for (i, id) in ids.iter().enumerate().filter(|(i, _)| *i != 36) {
        assert_eq!(worker.status(*id), if i == 35 { 0 } else { 429 }, "request {i}");
    }
}

#[derive(Clone, Debug)]
enum Event {
    Request,
    /// The upstream answers one that was let go on.
    Response(prop::sample::Index),
    /// One of the requests under way goes: at once, or in the VM first.
    Gone(prop::sample::Index),
    OverInVm(prop::sample::Index),
    /// So many of these replies come in one message.
    Replies(usize, Vec<u8>),
    Close,
    Pass(u64),
    NoStreams(u32),
    /// The stream ends when it is written next.
    NoSend,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let replies = prop::sample::select(vec![
        GREETED.to_vec(),
        allowed(),
        denied(),
        NOSCRIPT.to_vec(),
        b"-ERR x\r\n".to_vec(),
        b"?".to_vec(),
    ]);
    let event = prop_oneof![
        24 => Just(Event::Request),
        2 => any::<prop::sample::Index>().prop_map(Event::Response),
        2 => any::<prop::sample::Index>().prop_map(Event::Gone),
        2 => any::<prop::sample::Index>().prop_map(Event::OverInVm),
        12 => (1_usize..60, replies).prop_map(|(count, reply)| Event::Replies(count, reply)),
        2 => Just(Event::Close),
        6 => (0_u64..120).prop_map(Event::Pass),
        2 => (0_u32..4).prop_map(Event::NoStreams),
        1 => Just(Event::NoSend),
    ];
    prop::collection::vec(event, 1..300)
}

/// A worker, and what a test knows of its requests.
struct World<V> {
    worker: Worker<V>,
    under_way: Vec<u32>,
    /// Over in the VM and not in the host, with the statuses that they had then.
    over: Vec<(u32, u32)>,
}

impl<V: Vm> World<V> {
    fn happens(&mut self, event: Event) {
        let World { worker, under_way, over } = self;
        let has_stream = worker.vm.host(|host| host.stream.is_some());
        match event {
            Event::Request => under_way.push(worker.request_of("a")),
            Event::Response(which) if !under_way.is_empty() => {
                let id = *which.get(under_way);
                if worker.status(id) == 200 {
                    worker.response(id, &[]);
                }
            }
            Event::Gone(which) if !under_way.is_empty() => {
                let id = under_way.swap_remove(which.index(under_way.len()));
                worker.gone(id);
            }
            Event::OverInVm(which) if !under_way.is_empty() => {
                let id = under_way.swap_remove(which.index(under_way.len()));
                over.push((id, worker.status(id)));
                worker.over_in_vm(id);
            }
            Event::Replies(count, reply) if has_stream => worker.receive(&reply.repeat(count)),
            Event::Close if has_stream => worker.close(),
            Event::Pass(ms) => worker.pass_ms(ms),
            Event::NoStreams(times) => worker.vm.host(|host| host.faults.open_stream = times),
            Event::NoSend => worker.vm.host(|host| host.faults.send = 1),
            _ => {} // there is nothing it could happen to
        }
    }
}

pub(crate) fn every_request_ends_once_whatever_happens<V: Vm>() {
    let requests = Cell::new(0);
    let mut runner = TestRunner::new(Config { cases: 40, failure_persistence: None, ..Config::default() });
    runner
        .run(&events(), |events| {
            let worker = Worker::<V>::start(&with_redis_or_503());
            let mut world = World { worker, under_way: Vec::new(), over: Vec::new() };
            for event in events {
                world.happens(event);
            }
            let World { mut worker, under_way, over } = world;
            worker.pass_ms(100);
            for id in &under_way {
                prop_assert_ne!(worker.status(*id), 0, "{} waits for ever", id);
            }
            for (id, status) in over {
                prop_assert_eq!(worker.status(id), status, "{} was acted for when it was over", id);
            }
            prop_assert!(worker.most_at_once <= 32);
            requests.set(requests.get() + under_way.len());
            Ok(())
        })
        .unwrap();
    assert!(requests.get() > 500, "{} requests", requests.get());
}
