//! What happens where Redis can't be asked, or the host doesn't do what it is asked for.

use super::*;

pub(crate) fn a_host_that_opens_no_stream_is_a_failure<V: Vm>() {
    let mut worker = Worker::<V>::start(&with_redis_or_503());
    worker.vm.host(|host| host.faults.open_stream = 3);
    let ids = requests(&mut worker, 40);
    worker.turn();
    assert!(ids.iter().all(|id| worker.status(*id) == 503));
    let at_once = worker.request_of("b");
    assert_eq!(worker.status(at_once), 503, "no stream is due: it doesn't wait");
    worker.pass_ms(1000);
    worker.receive(GREETED);
    let id = worker.request_of("a");
    worker.receive(&allowed());
    assert_eq!(worker.status(id), 200);
    let told = worker.vm.host(|host| host.logs.clone());
    assert_eq!(told.len(), 2, "gone and back, once each: {told:?}");
}

pub(crate) fn a_stream_that_ends_while_it_is_written_fails_its_calls<V: Vm>() {
    let mut worker = connected::<V>(&with_redis_or_503());
    let earlier = worker.request_of("a");
    worker.vm.host(|host| host.faults.send = 1);
    let ids = [earlier, worker.request_of("b")];
    worker.turn();
    assert_eq!(ids.map(|id| worker.status(id)), [503, 503]);
    worker.vm.host(|host| host.faults.send = 1);
    worker.pass_ms(30);
    assert!(worker.vm.host(|host| host.stream.is_none()), "the greeting couldn't be sent");
    worker.pass_ms(60);
    worker.receive(GREETED);
    let id = worker.request_of("a");
    worker.receive(&allowed());
    assert_eq!(worker.status(id), 200);
}

pub(crate) fn commands_that_wait_for_a_turn_are_not_sent_on_another_stream<V: Vm>() {
    let mut worker = connected::<V>(&with_redis_or_503());
    let id = worker.request_of("a");
    worker.close();
    assert_eq!(worker.status(id), 503);
    worker.pass_ms(30);
    assert_eq!(worker.sent(), ["EVALSHA rl:greeting"]);
}

pub(crate) fn a_redis_that_keeps_silent_is_not_waited_for_again<V: Vm>() {
    let mut worker = connected::<V>(&with_redis_or_503());
    let ids = requests(&mut worker, 5);
    worker.pass_ms(40);
    assert_eq!(statuses(&mut worker, &ids), [0; 5], "they have 50 ms");
    worker.pass_ms(20);
    assert_eq!(statuses(&mut worker, &ids), [503; 5]);
    worker.sent();
    for _ in 0..100 {
        let id = worker.request_of("a");
        assert_eq!(worker.status(id), 503, "at once");
        worker.pass_ms(9);
    }
    assert!(worker.sent().iter().all(|sent| sent == "EVALSHA rl:greeting"));
    let counted = ["timeouts", "failures", "breaker_open"]
        .map(|name| worker.vm.host(|host| host.metric(&format!("weir.store.{name}"))));
    assert_eq!(counted, [5, 5, 1]);
}

pub(crate) fn a_redis_that_refuses_is_asked_once_a_second<V: Vm>() {
    const REFUSED: &[u8] = b"-NOAUTH Authentication required.\r\n";
    let mut worker = connected::<V>(&with_redis_or_503());
    let ids = requests(&mut worker, 5);
    worker.receive(&REFUSED.repeat(5));
    assert_eq!(statuses(&mut worker, &ids), [503; 5]);
    worker.sent();
    for _ in 0..3 {
        let id = worker.request_of("a");
        assert_eq!((worker.status(id), worker.sent().len()), (503, 0));
        worker.pass_ms(1000);
        assert_eq!(worker.sent(), ["EVALSHA rl:greeting"], "which charges nobody");
        worker.receive(REFUSED);
        let ids = requests(&mut worker, 2);
        assert_eq!((statuses(&mut worker, &ids), worker.sent().len()), (vec![0, 503], 1), "one is the probe");
        worker.receive(REFUSED);
        assert_eq!(worker.status(ids[0]), 503);
    }
    worker.pass_ms(1000);
    worker.receive(REFUSED);
    let probe = worker.request_of("a");
    worker.receive(&denied());
    let next = worker.request_of("b");
    worker.receive(&allowed());
    assert_eq!((worker.status(probe), worker.status(next)), (429, 200));
}

pub(crate) fn a_redis_that_is_back_decides_at_once<V: Vm>() {
    let mut worker = connected::<V>(&with_redis_or_503());
    let ids = requests(&mut worker, 20);
    worker.close();
    worker.turn();
    assert_eq!(statuses(&mut worker, &ids), [503; 20]);
    worker.vm.host(|host| host.faults.open_stream = 1000);
    worker.pass_ms(4000);
    worker.vm.host(|host| host.faults.open_stream = 0);
    worker.pass_ms(410);
    worker.receive(NOSCRIPT); // it has been restarted: no script is loaded
    let ids = requests(&mut worker, 2);
    worker.receive(&allowed().repeat(2));
    assert_eq!(statuses(&mut worker, &ids), [200; 2], "no request had to be a probe");
    let told = worker.vm.host(|host| host.logs.clone());
    assert_eq!(told.len(), 3, "there, gone and back, once each: {told:?}");
}

pub(crate) fn a_host_that_gives_nothing_else_does_no_harm<V: Vm>() {
    let mut host = Host::new(&Arc::default(), "weir", local(""));
    host.faults.metrics = 1000;
    let (mut worker, configured) = Worker::<V>::configure(host);
    assert!(configured);
    let id = worker.request_of("a");
    assert_eq!(worker.status(id), 200, "no metrics");
    worker.vm.host(|host| host.faults.shared_data = 1000);
    let id = worker.request_of("a");
    assert_eq!(worker.status(id), 200, "no shared data: there is nobody left to ask");
    let mut worker = Worker::<V>::start(&local(r#","match":{"path":{"prefix":"/x"},"methods":["GET"],"hosts":["a"]}"#));
    worker.vm.host(|host| host.faults.headers = 1000);
    let id = worker.request_of("a");
    assert_eq!(worker.status(id), 200, "no headers");
}

pub(crate) fn a_worker_without_requests_keeps_quiet<V: Vm>() {
    let mut worker = Worker::<V>::start(&with_redis(""));
    worker.pass_ms(60_000);
    let quiet = worker.vm.host(|host| (host.streams, host.tick_ms, host.sent.len(), host.logs.len()));
    assert_eq!(quiet, (0, 0, 0, 0));
    let mut worker = connected::<V>(&with_redis(""));
    worker.pass_ms(100);
    assert_eq!(worker.vm.host(|host| host.tick_ms), 0, "once nothing waits there are no ticks");
}

pub(crate) fn a_clock_that_steps_back_holds_no_request_up<V: Vm>() {
    let mut worker = connected::<V>(&with_redis_or_503());
    let id = worker.request_of("a");
    worker.pass_ms(30);
    worker.vm.host(|host| host.now_ns -= 3_600_000_000_000);
    worker.pass_ms(10);
    assert_eq!(worker.status(id), 0);
    worker.pass_ms(30);
    assert_eq!(worker.status(id), 503, "a tick later than without, not an hour");
}

pub(crate) fn gauges_come_back_to_nothing<V: Vm>() {
    let mut worker = connected::<V>(&with_redis(""));
    let gauges = |worker: &mut Worker<V>| {
        worker.vm.host(|host| (host.metric("weir.store.connected"), host.metric("weir.store.pending")))
    };
    for i in 0..7 {
        worker.request_of(&format!("k{i}"));
    }
    worker.pass_ms(20);
    assert_eq!(gauges(&mut worker), (1, 7));
    worker.receive(&allowed().repeat(7));
    worker.pass_ms(20);
    assert_eq!(gauges(&mut worker), (1, 0));
    worker.request_of("a");
    worker.close();
    worker.pass_ms(10);
    assert_eq!(gauges(&mut worker), (0, 0));
    let counted = ["requests", "failures", "reconnects", "timeouts"]
        .map(|name| worker.vm.host(|host| host.metric(&format!("weir.store.{name}"))));
    assert_eq!(counted, [9, 1, 0, 0]);
}

pub(crate) fn a_redis_that_comes_and_goes_is_told_of_now_and_then<V: Vm>() {
    let mut worker = connected::<V>(&with_redis_or_503());
    for _ in 0..30 {
        let waiting = worker.request_of("a");
        worker.turn();
        worker.close();
        worker.turn();
        assert_eq!(worker.status(waiting), 503);
        worker.pass_ms(500);
        worker.receive(GREETED);
    }
    let told = worker.vm.host(|host| host.logs.clone());
    let away: Vec<&String> = told.iter().filter(|line| line.contains("can't be asked")).collect();
    assert_eq!((away.len(), told.len()), (2, 5), "in 15 s: {told:?}");
    assert!(away[1].ends_with("times since it was last said)"), "{told:?}");
}
