//! What one callback brings about runs nested when it has returned, so no callback answers more than thirty-two requests.

use super::super::worker::commands;
use super::*;

const AT_ONCE: usize = 32;

pub(crate) fn many_replies_at_once_are_answered_in_turns<V: Vm>() {
    let mut worker = connected::<V>(&with_redis(""));
    for reply in [allowed(), denied()] {
        let ids = requests(&mut worker, 500);
        worker.receive(&reply.repeat(500));
        let decided = ids.iter().filter(|id| worker.status(**id) != 0).count();
        assert_eq!(decided, AT_ONCE, "in the callback itself");
        worker.turn();
        assert!(ids.iter().all(|id| worker.status(*id) != 0));
    }
    assert!(worker.most_at_once <= AT_ONCE, "{}", worker.most_at_once);
}

pub(crate) fn the_commands_of_a_turn_are_one_message<V: Vm>() {
    let mut worker = connected::<V>(&with_redis(""));
    requests(&mut worker, 3);
    worker.turn();
    let sent = worker.vm.host(|host| std::mem::take(&mut host.sent));
    assert_eq!(sent.iter().map(|message| commands(message).len()).collect::<Vec<_>>(), [3]);
}

pub(crate) fn many_failures_at_once_are_answered_in_turns<V: Vm>() {
    for on_error in ["local", "allow", "deny"] {
        let mut worker = connected::<V>(&with_redis(&format!(r#","on_error":"{on_error}""#)));
        let ids = requests(&mut worker, 300);
        worker.close();
        worker.turn();
        assert!(ids.iter().all(|id| worker.status(*id) == if on_error == "deny" { 503 } else { 200 }), "{on_error}");
        worker.pass_ms(2000);
        worker.receive(GREETED);
        let ids = requests(&mut worker, 300);
        worker.pass_ms(60);
        assert!(ids.iter().all(|id| worker.status(*id) == if on_error == "deny" { 503 } else { 200 }), "{on_error}");
        assert!(worker.most_at_once <= AT_ONCE, "{on_error}: {}", worker.most_at_once);
    }
}

pub(crate) fn more_requests_than_can_wait_are_all_answered<V: Vm>() {
    const CAN_WAIT: usize = 8192;
    let mut worker = connected::<V>(&with_redis_or_503());
    let mut ids = requests(&mut worker, CAN_WAIT);
    assert_eq!(worker.sent().len(), CAN_WAIT);
    for i in 0..5 {
        assert!(worker.vm.host(|host| host.stream.is_some()));
        let id = worker.request_of(&format!("over{i}"));
        assert_eq!(worker.status(id), 503, "at once");
        ids.push(id);
    }
    assert!(
        worker.vm.host(|host| host.stream.is_none()),
        "the breaker has opened, and the stream that owes so much is given up"
    );
    worker.turn();
    assert!(ids.iter().all(|id| worker.status(*id) == 503));
    assert!(worker.most_at_once <= AT_ONCE, "{}", worker.most_at_once);
}

pub(crate) fn a_host_that_gives_no_queue_is_made_do_without<V: Vm>() {
    let mut host = Host::new(&Arc::default(), "weir", with_redis(""));
    host.faults.queues = 1;
    let (mut worker, configured) = Worker::<V>::configure(host);
    assert!(configured);
    let ids = requests(&mut worker, 100);
    worker.pass_ms(10);
    worker.receive(&[GREETED, &denied().repeat(100)].concat());
    worker.pass_ms(100);
    assert!(ids.iter().all(|id| worker.status(*id) == 429), "by ticks, thirty-two at a time");
    assert!(worker.most_at_once <= AT_ONCE);
}
