//! What Redis says: the reply of the script decides, and anything else is a failure.

use super::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

pub(crate) fn replies_are_the_same_wherever_they_are_cut<V: Vm>() {
    let mut worker = connected::<V>(&with_redis(r#","on_error":"deny","cache_denials":"0s""#));
    let replies = [allowed(), b"-ERR x\r\n".to_vec(), denied(), b"$5\r\n*1\r\n:\r\n".to_vec(), allowed()].concat();
    for cut in 0..=replies.len() {
        let ids = requests(&mut worker, 5);
        worker.receive(&replies[..cut]);
        worker.receive(&replies[cut..]);
        assert_eq!(statuses(&mut worker, &ids), [200, 503, 429, 503, 200], "cut at {cut}");
    }
    let ids = requests(&mut worker, 5);
    for byte in replies {
        worker.receive(&[byte]);
    }
    assert_eq!(statuses(&mut worker, &ids), [200, 503, 429, 503, 200], "byte by byte");
}

pub(crate) fn a_script_that_redis_does_not_know_is_brought_along<V: Vm>() {
    let mut worker = connected::<V>(&with_redis(r#","on_error":"deny""#));
    let (one, other) = (worker.request_of("a"), worker.request_of("b"));
    worker.receive(NOSCRIPT);
    worker.receive(&allowed());
    assert_eq!((worker.status(one), worker.status(other)), (0, 200));
    worker.receive(&denied());
    assert_eq!(worker.status(one), 429);
    assert_eq!(worker.sent(), ["EVALSHA rl:{r:a}:tb:60000", "EVALSHA rl:{r:b}:tb:60000", "EVAL rl:{r:a}:tb:60000"]);
    let again = worker.request_of("c");
    worker.receive(NOSCRIPT);
    worker.receive(NOSCRIPT);
    assert_eq!(worker.status(again), 503, "a second time is a failure");
    assert_eq!(worker.sent().len(), 2);
}

pub(crate) fn a_reply_of_another_kind_fails_its_own_request_alone<V: Vm>() {
    let replies = [
        "-NOAUTH Authentication required.\r\n",
        "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
        "-LOADING Redis is loading the dataset in memory\r\n",
        "-BUSY Redis is busy running a script.\r\n",
        "-READONLY You can't write against a read only replica.\r\n",
        "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        "-MISCONF Redis is configured to save RDB snapshots\r\n",
        "-MOVED 3999 127.0.0.1:6381\r\n",
        "-CROSSSLOT Keys in request don't hash to the same slot\r\n",
        "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
        "-upstream failure\r\n",
        "-no upstream host\r\n",
        "-\r\n",
        "-\u{fffd}\0\n\r\n",
        "+OK\r\n",
        ":1\r\n",
        "$-1\r\n",
        "$0\r\n\r\n",
        "$20\r\n*4\r\n:1\r\n:2\r\n:0\r\n:0\r\n\r\n",
        "*-1\r\n",
        "*0\r\n",
        "*3\r\n:1\r\n:2\r\n:0\r\n",
        "*5\r\n:1\r\n:2\r\n:0\r\n:0\r\n:0\r\n",
        "*8\r\n:1\r\n:2\r\n:0\r\n:0\r\n:1\r\n:2\r\n:0\r\n:0\r\n",
        "*4\r\n:1\r\n$-1\r\n:0\r\n:0\r\n",
        "*4\r\n:1\r\n$1\r\n2\r\n:0\r\n:0\r\n",
        "*4\r\n:1\r\n-ERR x\r\n:0\r\n:0\r\n",
        "*1\r\n*4\r\n:1\r\n:2\r\n:0\r\n:0\r\n",
        "*4\r\n:1\r\n:9007199254740992\r\n:0\r\n:0\r\n",
        "*4\r\n:1\r\n:9223372036854775807\r\n:0\r\n:0\r\n",
    ];
    for other in replies {
        let mut worker = connected::<V>(&with_redis_or_503());
        let ids = requests(&mut worker, 3);
        worker.receive(&[&allowed(), other.as_bytes(), &denied()].concat());
        assert_eq!(statuses(&mut worker, &ids), [200, 503, 429], "{other:?}");
        assert_eq!(worker.sent().len(), 3, "{other:?}: nothing is sent again, it could charge twice");
    }
}

pub(crate) fn bytes_that_are_no_reply_end_the_stream<V: Vm>() {
    let endless = |start: &str| [start.as_bytes(), &[b'x'; 2 << 20]].concat();
    let bytes = [
        b"<html><title>502</title></html>".to_vec(),
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        b"\r\n".to_vec(),
        b"_\r\n".to_vec(),
        b"*-2\r\n".to_vec(),
        b"*2147483648\r\n".to_vec(),
        b"$99999999999\r\n".to_vec(),
        b"*18446744073709551616\r\n".to_vec(),
        b"$x\r\n".to_vec(),
        b":99999999999999999999\r\n".to_vec(),
        b":1e3\r\n".to_vec(),
        b"*4\r\n:1\r\n:x\r\n".to_vec(),
        b"$3\r\nabcde\r\n".to_vec(),
        b"+O\rK\r\n".to_vec(),
        b"*1000000\r\n".repeat(3),
        endless("+"),
        endless("-"),
        endless("$1048576\r\n"),
        allowed().repeat(4), // one more than was asked for
    ];
    for bytes in bytes {
        let name = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
        let mut worker = connected::<V>(&with_redis_or_503());
        let ids = requests(&mut worker, 3);
        worker.receive(&bytes);
        assert!(worker.vm.host(|host| host.stream.is_none()), "{name:?}: it is given up");
        let wanted = if bytes.starts_with(&allowed()) { 200 } else { 503 };
        assert_eq!(statuses(&mut worker, &ids), [wanted; 3], "{name:?}");
        worker.pass_ms(1000);
        let id = worker.request_of("a");
        worker.turn();
        worker.receive(&[GREETED, &allowed()].concat());
        assert_eq!(worker.status(id), 200, "{name:?}: the next stream begins anew");
    }
}

pub(crate) fn a_late_reply_is_nobody_elses<V: Vm>() {
    let mut worker = connected::<V>(&with_redis_or_503());
    let late = worker.request_of("late");
    worker.pass_ms(60);
    assert_eq!(worker.status(late), 503);
    let ids = requests(&mut worker, 2);
    worker.pass_ms(20);
    worker.receive(&denied());
    assert_eq!(statuses(&mut worker, &ids), [0, 0], "that was the late one's");
    worker.receive(&[allowed(), denied()].concat());
    assert_eq!(statuses(&mut worker, &ids), [200, 429]);
    assert_eq!(worker.status(late), 503);
}

pub(crate) fn nonsense_from_redis_never_reaches_a_client<V: Vm>() {
    let replies = [
        reply(1, -8, 0, 0),
        reply(1, -1, 0, 0),
        reply(1, 0, 0, -2),
        reply(0, 0, -1, 0),
        reply(0, 0, 0, 0),
        reply(7, 0, 0, 0),
        b"$-1\r\n".to_vec(),
        b"-OOM command not allowed\r\n".to_vec(),
    ];
    for nonsense in replies {
        let mut worker = connected::<V>(&with_redis(""));
        let id = worker.request_of("a");
        worker.receive(&nonsense);
        assert_eq!(filter_state(&mut worker, id)[1], "weir_source=local", "{}", String::from_utf8_lossy(&nonsense));
        for (name, value) in worker.response(id, &[]) {
            assert!(value.bytes().all(|b| b.is_ascii_digit()), "{name}: {value}");
        }
    }
    let mut worker = connected::<V>(&with_redis(""));
    let id = worker.request_of("a");
    worker.receive(&reply(1, 1000, 0, 0));
    assert_eq!(value(&worker.response(id, &[]), "ratelimit-remaining"), Some("3"), "no more than there can be");
}

pub(crate) fn any_bytes_from_redis_settle_requests_or_fail_them<V: Vm>() {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "*",
            "*4\r\n",
            "*1\r\n",
            "$",
            "$3\r\nabc\r\n",
            ":",
            ":1\r\n",
            ":0\r\n",
            "-ERR",
            "+",
            "\r\n",
            "\r"
        ])
        .prop_map(|piece| piece.as_bytes().to_vec()),
        any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        prop::collection::vec(any::<u8>(), 0..20),
    ];
    let messages = prop::collection::vec(prop::collection::vec(piece, 0..12), 1..6);
    let mut runner = TestRunner::new(Config { cases: 100, failure_persistence: None, ..Config::default() });
    runner
        .run(&messages, |messages| {
            let mut worker = connected::<V>(&with_redis_or_503());
            let ids = requests(&mut worker, 20);
            for message in messages {
                if worker.vm.host(|host| host.stream.is_some()) {
                    worker.receive(&message.concat());
                }
            }
            worker.pass_ms(60);
            assert!(statuses(&mut worker, &ids).iter().all(|status| [200, 429, 503].contains(status)));
            Ok(())
        })
        .unwrap();
}
