//! Buckets of this proxy, in the shared data of its workers.

use super::*;
use std::sync::{Barrier, Mutex};

pub(crate) fn writes_that_others_get_ahead_of_are_tried_again<V: Vm>() {
    let configuration = r#"{"rules":[{"name":"r","key":["header:x-api-key"],"limits":["1/d burst 4"]}]}"#;
    let mut worker = Worker::<V>::start(configuration);
    for (others, wanted) in [(0, 200), (1, 200), (3, 200), (1000, 429)] {
        worker.vm.host(|host| host.faults.ahead = others);
        let id = worker.request_of("a");
        assert_eq!(worker.status(id), wanted, "{others} get ahead");
    }
    let left = worker.vm.host(|host| std::mem::take(&mut host.faults.ahead));
    assert_eq!(left, 1000 - 64, "not for ever");
    let ids = [worker.request_of("a"), worker.request_of("a")];
    assert_eq!(ids.map(|id| worker.status(id)), [200, 429], "each took one token, and the one denied took none");
}

pub(crate) fn eight_workers_at_once_admit_exactly_the_limit<V: Vm>() {
    let process: Arc<Mutex<Process>> = Arc::default();
    let configuration = r#"{"rules":[{"name":"r","key":["header:x-api-key"],"limits":["1/d burst 100"]}]}"#;
    let together = Barrier::new(8);
    let admitted: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8)
            .map(|_| {
                let (process, together) = (&process, &together);
                scope.spawn(move || {
                    let mut worker = Worker::<V>::start_in(process, configuration);
                    together.wait();
                    let statuses = (0..1000).map(|_| {
                        let id = worker.request_of("shared");
                        let status = worker.status(id);
                        worker.gone(id);
                        status
                    });
                    statuses.filter(|status| *status == 200).count()
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    assert_eq!(admitted, 100);
    assert_eq!(process.lock().unwrap().keys("weir.local."), 1);
}

pub(crate) fn a_hundred_thousand_subjects_take_no_more_room_and_one_is_still_limited<V: Vm>() {
    const SLOTS: usize = 1024;
    let process: Arc<Mutex<Process>> = Arc::default();
    let mut worker =
        Worker::<V>::start_in(&process, r#"{"rules":[{"name":"r","key":["header:x-api-key"],"limits":["60/h"]}]}"#);
    let mut admitted = 0;
    for i in 0..100_000 {
        let id = worker.request_of(&format!("made up {i}"));
        worker.gone(id);
        if i % 500 == 0 {
            let id = worker.request_of("one");
            admitted += u32::from(worker.status(id) == 200);
            worker.gone(id);
        }
    }
    assert_eq!(admitted, 60, "of 200");
    let process = process.lock().unwrap();
    let (keys, bytes) = (process.keys("weir.local."), process.bytes());
    assert!(keys <= SLOTS && bytes <= 1 << 20, "{keys} keys, {bytes} bytes");
}

pub(crate) fn a_subject_takes_one_place_however_long_it_stays<V: Vm>() {
    let process: Arc<Mutex<Process>> = Arc::default();
    let mut worker =
        Worker::<V>::start_in(&process, r#"{"rules":[{"name":"r","key":["header:x-api-key"],"limits":["1/s"]}]}"#);
    let bytes = |process: &Mutex<Process>| process.lock().unwrap().bytes();
    let mut after_the_first = None;
    for window in 0..10_000 {
        let ids = [worker.request_of("a"), worker.request_of("a")];
        assert_eq!(ids.map(|id| worker.status(id)), [200, 429], "window {window}");
        assert_eq!(*after_the_first.get_or_insert_with(|| bytes(&process)), bytes(&process), "window {window}");
        for id in ids {
            worker.gone(id);
        }
        worker.pass_ms(1000);
    }
}

pub(crate) fn a_failed_redis_leaves_the_limit_in_force<V: Vm>() {
    let mut worker = Worker::<V>::start(&with_redis(""));
    worker.vm.host(|host| host.faults.open_stream = 1);
    let ids: Vec<u32> = (0..5).map(|_| worker.request_of("a")).collect();
    worker.turn();
    assert_eq!(statuses(&mut worker, &ids), [200, 200, 200, 429, 429], "a burst of three");
    let answer = answer(&mut worker, ids[4]);
    assert_eq!(value(&answer.headers, "retry-after"), Some("1"));
    assert_eq!(filter_state(&mut worker, ids[4])[1], "weir_source=local");
}
