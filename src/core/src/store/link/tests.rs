use super::*;
use crate::limit::{Limit, Outcome};
use crate::store::client::tests::store_with;
use crate::store::{LimitCall, Ticket};
use proptest::prelude::*;
use std::collections::HashMap;

const GREETED: &[u8] = b"*4\r\n:1\r\n:1\r\n:0\r\n:0\r\n";
const ALLOWED: &[u8] = b"*4\r\n:1\r\n:2\r\n:0\r\n:600\r\n";
const DENIED: &[u8] = b"*4\r\n:0\r\n:0\r\n:600\r\n:1800\r\n";
const NOSCRIPT: &[u8] = b"-NOSCRIPT No matching script.\r\n";

/// A link with a clock and somebody who does what it wants.
struct World {
    link: Link,
    now_us: u64,
    /// Commands on the open stream, by their first word.
    sent: Vec<String>,
    done: Vec<(u32, Result<Outcome, Failure>)>,
    counted: HashMap<Counter, u32>,
    pages: Vec<Result<Reply, Failure>>,
    told: Vec<String>,
    streams: u32,
    woken: bool,
    reset: bool,
    /// Whether streams can be opened.
    reachable: bool,
}

impl World {
    fn new() -> World {
        World::with("")
    }

    /// One whose `store` has these fields too.
    fn with(fields: &str) -> World {
        let store = store_with(fields);
        World {
            link: Link::new(&store, 7),
            now_us: 1_000_000,
            sent: Vec::new(),
            done: Vec::new(),
            counted: HashMap::new(),
            pages: Vec::new(),
            told: Vec::new(),
            streams: 0,
            woken: false,
            reset: false,
            reachable: true,
        }
    }

    /// One whose stream is open and greeted.
    fn connected() -> World {
        let mut world = World::new();
        world.ask(0);
        world.poll();
        world.receive(GREETED);
        world.receive(ALLOWED);
        assert_eq!(world.take_done(), [(0, Ok(Outcome::Allowed))]);
        world.sent.clear();
        world
    }

    fn event(&mut self, event: impl FnOnce(&mut Link, u64, &mut Vec<Effect>)) {
        let mut out = Vec::new();
        event(&mut self.link, self.now_us, &mut out);
        let mut todo = VecDeque::from(out);
        while let Some(effect) = todo.pop_front() {
            match effect {
                Effect::Wake => self.woken = true,
                Effect::Open => {
                    self.streams += 1;
                    let mut more = Vec::new();
                    self.link.opened(self.reachable, self.now_us, &mut more);
                    todo.extend(more);
                }
                Effect::Dispatch(_) => panic!("a callout"),
                Effect::Send(bytes) => {
                    let text = String::from_utf8(bytes).unwrap();
                    let key = text.split("\r\n").find(|word| word.starts_with("rl:")).unwrap_or("-");
                    self.sent.push(format!("{} {key}", text.split("\r\n").nth(2).unwrap()));
                }
                Effect::Reset => self.reset = true,
                Effect::Done { ticket, result, .. } => {
                    let Ticket::Request { id, .. } = ticket else { panic!("{ticket:?}") };
                    self.done.push((id, result.map(|verdicts| verdicts[0].outcome)));
                }
                Effect::Page { reply, .. } => self.pages.push(reply),
                Effect::Connected => self.told.push("connected".to_owned()),
                Effect::Disconnected(failure) => self.told.push(format!("disconnected: {failure}")),
                Effect::Count(counter) => *self.counted.entry(counter).or_default() += 1,
            }
        }
    }

    fn ask(&mut self, request: u32) {
        let limit = Limit::token_bucket(100, 60_000, 3).unwrap();
        let key = format!("rl:{{r:{request}}}:tb:60000").into_bytes();
        let call = Call::new(&[LimitCall { key, limit: &limit, cost: 1 }]);
        let ticket = Ticket::Request { id: request, part: 0 };
        self.event(|link, now, out| link.ask(Pending { ticket, call, since_us: now }, now, out));
    }

    fn poll(&mut self) {
        self.event(Link::poll);
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.event(|link, now, out| link.received(bytes, now, out));
    }

    fn close(&mut self) {
        self.event(Link::closed);
    }

    /// Time passes, with polls as often as the link wants them.
    fn pass_ms(&mut self, ms: u64) {
        let end = self.now_us + ms * 1000;
        while self.link.poll_every_ms() > 0 && self.now_us + u64::from(self.link.poll_every_ms()) * 1000 <= end {
            self.now_us += u64::from(self.link.poll_every_ms()) * 1000;
            self.poll();
        }
        self.now_us = end;
    }

    fn take_done(&mut self) -> Vec<(u32, Result<Outcome, Failure>)> {
        std::mem::take(&mut self.done)
    }

    fn count(&self, counter: Counter) -> u32 {
        self.counted.get(&counter).copied().unwrap_or_default()
    }
}

fn all(requests: impl IntoIterator<Item = u32>, failure: &Failure) -> Vec<(u32, Result<Outcome, Failure>)> {
    requests.into_iter().map(|request| (request, Err(failure.clone()))).collect()
}

#[test]
fn calls_before_the_first_stream_wait_for_it_and_are_sent_behind_the_greeting() {
    let mut world = World::new();
    assert_eq!(world.link.poll_every_ms(), 0, "a worker without requests keeps quiet");
    world.ask(1);
    world.ask(2);
    assert!(world.woken);
    assert_eq!((world.streams, world.link.pending()), (0, 2), "a request can't open a stream");
    world.poll();
    assert_eq!(world.sent, ["EVALSHA rl:greeting", "EVALSHA rl:{r:1}:tb:60000", "EVALSHA rl:{r:2}:tb:60000"]);
    world.receive(GREETED);
    assert_eq!(world.told, ["connected"]);
    world.receive(&[ALLOWED, DENIED].concat());
    assert_eq!(world.take_done(), [(1, Ok(Outcome::Allowed)), (2, Ok(Outcome::Denied { retry_ms: 600 }))]);
    assert_eq!((world.link.pending(), world.link.poll_every_ms()), (0, 0));
    assert_eq!((world.count(Counter::Request), world.count(Counter::Failure)), (2, 0));
}

#[test]
fn calls_that_no_stream_comes_for_time_out() {
    let mut world = World::new();
    world.ask(1);
    world.now_us += 50_000;
    world.poll();
    assert_eq!(world.take_done(), all([1], &Failure::Timeout));
}

#[test]
fn replies_settle_their_calls_wherever_they_are_cut() {
    let bytes = [ALLOWED, DENIED, ALLOWED].concat();
    for cut in 1..bytes.len() {
        let mut world = World::connected();
        (1..=3).for_each(|request| world.ask(request));
        bytes.chunks(cut).for_each(|chunk| world.receive(chunk));
        let wanted = [(1, Ok(Outcome::Allowed)), (2, Ok(Outcome::Denied { retry_ms: 600 })), (3, Ok(Outcome::Allowed))];
        assert_eq!(world.take_done(), wanted, "cut every {cut} bytes");
    }
}

#[test]
fn a_script_that_redis_does_not_know_is_brought_along_once() {
    let mut world = World::connected();
    world.ask(1);
    world.ask(2);
    world.receive(NOSCRIPT);
    world.receive(ALLOWED); // of 2
    world.receive(DENIED); // of 1, which came again behind 2
    assert_eq!(world.sent, ["EVALSHA rl:{r:1}:tb:60000", "EVALSHA rl:{r:2}:tb:60000", "EVAL rl:{r:1}:tb:60000"]);
    assert_eq!(world.take_done(), [(2, Ok(Outcome::Allowed)), (1, Ok(Outcome::Denied { retry_ms: 600 }))]);
    assert_eq!((world.count(Counter::Noscript), world.count(Counter::Failure)), (1, 0));
}

#[test]
fn a_second_noscript_is_a_failure() {
    let mut world = World::connected();
    world.ask(1);
    world.receive(NOSCRIPT);
    world.receive(NOSCRIPT);
    assert_eq!(world.take_done(), all([1], &Failure::Error("NOSCRIPT No matching script.".to_owned())));
    assert_eq!(world.sent.len(), 2);
}

#[test]
fn no_other_reply_is_sent_again() {
    let replies: [&[u8]; 8] = [
        b"-LOADING Redis is loading the dataset in memory\r\n",
        b"-BUSY Redis is busy running a script.\r\n",
        b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        b"-MOVED 3999 127.0.0.1:6381\r\n",
        b"+OK\r\n",
        b"$-1\r\n",
        b":1\r\n",
        b"*4\r\n:1\r\n:-8\r\n:0\r\n:0\r\n",
    ];
    for reply in replies {
        let mut world = World::connected();
        world.ask(1);
        world.receive(reply);
        assert_eq!(world.sent.len(), 1, "{}", String::from_utf8_lossy(reply));
        assert!(matches!(world.take_done()[..], [(1, Err(_))]), "{}", String::from_utf8_lossy(reply));
        world.ask(2);
        world.receive(ALLOWED);
        assert_eq!(world.take_done(), [(2, Ok(Outcome::Allowed))], "the stream goes on");
    }
}

#[test]
fn a_late_reply_is_nobody_elses() {
    let mut world = World::connected();
    world.ask(1);
    world.pass_ms(60);
    assert_eq!(world.take_done(), all([1], &Failure::Timeout));
    world.ask(2);
    world.receive(DENIED); // of 1
    assert_eq!(world.take_done(), []);
    world.receive(ALLOWED);
    assert_eq!(world.take_done(), [(2, Ok(Outcome::Allowed))]);
}

#[test]
fn a_call_times_out_within_ten_milliseconds_of_its_time() {
    let mut world = World::connected();
    world.ask(1);
    world.pass_ms(49);
    assert_eq!(world.take_done(), []);
    world.pass_ms(11);
    assert_eq!(world.take_done(), all([1], &Failure::Timeout));
    assert_eq!((world.count(Counter::Timeout), world.count(Counter::Failure)), (1, 1));
}

#[test]
fn a_stream_that_ends_settles_all_that_wait_for_it() {
    let mut world = World::connected();
    (1..=4).for_each(|request| world.ask(request));
    world.close();
    assert_eq!(world.take_done(), all(1..=4, &Failure::Disconnected));
    assert_eq!(world.link.pending(), 0);
    assert_eq!(world.told, ["connected", "disconnected: no connection"]);
}

#[test]
fn while_a_new_stream_is_not_due_calls_are_refused_at_once() {
    let mut world = World::connected();
    world.ask(1);
    world.close();
    world.take_done();
    world.ask(2);
    assert_eq!(world.take_done(), all([2], &Failure::Disconnected));
    world.pass_ms(30);
    assert_eq!(world.streams, 2, "it is opened without waiting for a call");
    world.ask(3);
    world.receive(GREETED);
    world.receive(ALLOWED);
    assert_eq!(world.take_done(), [(3, Ok(Outcome::Allowed))]);
    assert_eq!(world.told, ["connected", "disconnected: no connection", "connected"]);
}

#[test]
fn the_pauses_between_streams_double_up_to_four_tenths_of_a_second() {
    let pauses = |seed| {
        let mut world = World::new();
        world.link = Link::new(&store_with(""), seed);
        world.reachable = false;
        world.ask(1);
        let mut opened = Vec::new();
        for _ in 0..300 {
            let before = world.streams;
            world.now_us += 10_000;
            world.poll();
            if world.streams > before {
                opened.push(world.now_us / 1000);
            }
        }
        opened.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<u64>>()
    };
    let longest = [25, 50, 100, 200, 400, 400, 400];
    for seed in 0..100 {
        for (pause, longest) in pauses(seed).into_iter().zip(longest) {
            assert!((longest / 2..longest + 10).contains(&pause), "{pause} of {longest} ms; polls are 10 ms apart");
        }
    }
    assert!((1..100).all(|seed| pauses(seed) != pauses(0)), "no two workers come back together");
}

#[test]
fn redis_is_asked_again_as_soon_as_a_stream_is_greeted() {
    let mut world = World::connected();
    (1..=5).for_each(|request| world.ask(request));
    world.close();
    world.take_done();
    world.ask(6);
    assert_eq!(world.take_done(), all([6], &Failure::BreakerOpen), "five failures in a row");
    world.pass_ms(40);
    world.receive(GREETED);
    world.ask(7);
    world.receive(ALLOWED);
    assert_eq!(world.take_done(), [(7, Ok(Outcome::Allowed))], "long before the breaker's second is over");
}

#[test]
fn redis_is_asked_again_as_soon_as_a_greeting_on_the_open_stream_is_answered() {
    let loading = b"-LOADING Redis is loading the dataset in memory\r\n";
    let mut world = World::connected();
    (1..=5).for_each(|request| world.ask(request));
    world.receive(&loading.repeat(5));
    world.take_done();
    world.sent.clear();
    for _ in 0..2 {
        world.ask(6);
        assert_eq!(world.take_done(), all([6], &Failure::BreakerOpen));
        world.pass_ms(60);
        assert_eq!(world.sent, ["EVALSHA rl:greeting"], "and no more of them before it is answered");
        world.sent.clear();
        world.receive(loading);
    }
    world.pass_ms(110);
    world.receive(GREETED);
    world.ask(7);
    world.receive(ALLOWED);
    assert_eq!(world.take_done(), [(7, Ok(Outcome::Allowed))], "long before the breaker's second is over");
    assert_eq!(world.link.poll_every_ms(), 0);
}

#[test]
fn a_stream_that_was_given_up_is_opened_again_without_a_call() {
    let mut world = World::connected();
    (1..=5).for_each(|request| world.ask(request));
    world.pass_ms(60);
    assert_eq!((world.take_done().len(), world.reset), (5, true));
    world.pass_ms(60);
    world.receive(GREETED);
    world.ask(6);
    world.receive(ALLOWED);
    assert_eq!(world.take_done(), [(6, Ok(Outcome::Allowed))], "long before the breaker's second is over");
}

#[test]
fn a_script_that_is_not_loaded_is_a_greeting_too() {
    let mut world = World::connected();
    world.close();
    world.ask(1);
    world.poll();
    world.receive(NOSCRIPT);
    world.receive(NOSCRIPT);
    world.receive(ALLOWED);
    assert_eq!(world.take_done(), [(1, Ok(Outcome::Allowed))]);
}

#[test]
fn a_stream_that_leads_nowhere_is_given_up_and_calls_do_not_wait_for_it() {
    let mut world = World::connected();
    (1..=5).for_each(|request| world.ask(request));
    world.pass_ms(60);
    assert_eq!(world.take_done(), all(1..=5, &Failure::Timeout));
    assert!(world.reset);
    assert_eq!(world.count(Counter::BreakerOpen), 1);
    let mut refused = 0;
    for request in 6..200 {
        world.ask(request);
        refused += u32::from(world.take_done() == all([request], &Failure::BreakerOpen));
        world.pass_ms(5);
    }
    assert!(refused >= 188, "{refused} of 194 were refused at once; the probe of each second may wait");
}

#[test]
fn a_new_stream_without_a_greeting_is_given_up_after_a_second() {
    let mut world = World::new();
    world.ask(1);
    world.poll();
    world.pass_ms(990);
    assert!(!world.reset);
    world.pass_ms(20);
    assert!(world.reset);
}

#[test]
fn a_stream_that_ends_in_peace_is_opened_again_by_the_next_call() {
    let mut world = World::connected();
    world.close();
    assert_eq!(world.link.poll_every_ms(), 0);
    assert_eq!(world.told, ["connected"]);
    world.woken = false;
    world.ask(1);
    assert!(world.woken);
    world.poll();
    world.receive(GREETED);
    world.receive(ALLOWED);
    assert_eq!(world.take_done(), [(1, Ok(Outcome::Allowed))]);
    assert_eq!((world.count(Counter::Reconnect), world.count(Counter::Failure)), (1, 0));
}

#[test]
fn bytes_that_are_no_reply_and_replies_without_a_call_end_the_stream() {
    let mut world = World::connected();
    world.ask(1);
    world.ask(2);
    world.receive(&[ALLOWED, b"HTTP/1.1 400 Bad Request\r\n"].concat());
    assert_eq!(world.take_done(), [(1, Ok(Outcome::Allowed)), (2, Err(Failure::Disconnected))]);
    assert!(world.reset);
    let mut world = World::connected();
    world.receive(ALLOWED);
    assert!(world.reset);
}

#[test]
fn no_more_calls_wait_than_the_limit() {
    let mut world = World::connected();
    let most = u32::try_from(MAX_WAITING).unwrap();
    (1..=most).for_each(|request| world.ask(request));
    assert_eq!(world.take_done(), []);
    world.ask(most + 1);
    assert_eq!(world.take_done(), all([most + 1], &Failure::Overloaded));
    world.receive(ALLOWED);
    world.take_done();
    world.ask(most + 2);
    assert_eq!(world.take_done(), [], "there is room for one again");
}

#[derive(Clone, Debug)]
enum Event {
    Ask,
    Pass(u64),
    Reply(&'static [u8]),
    Close,
    Reachable(bool),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let replies: [&'static [u8]; 6] = [GREETED, ALLOWED, DENIED, NOSCRIPT, b"-ERR x\r\n", b"?"];
    let event = prop_oneof![
        6 => Just(Event::Ask),
        3 => (1_u64..200).prop_map(Event::Pass),
        6 => proptest::sample::select(replies.to_vec()).prop_map(Event::Reply),
        1 => Just(Event::Close),
        1 => any::<bool>().prop_map(Event::Reachable),
    ];
    proptest::collection::vec(event, 0..120)
}

proptest! {
    #[test]
    fn every_call_is_settled_exactly_once_and_in_time(events in events()) {
        let mut world = World::new();
        let mut asked = HashMap::new();
        let mut settled: HashMap<u32, u32> = HashMap::new();
        let mut next = 0;
        for event in events.into_iter().chain([Event::Pass(100)]) {
            match event {
                Event::Ask => {
                    next += 1;
                    asked.insert(next, world.now_us);
                    world.ask(next);
                }
                Event::Pass(ms) => world.pass_ms(ms),
                Event::Reply(bytes) => world.receive(bytes),
                Event::Close => world.close(),
                Event::Reachable(reachable) => world.reachable = reachable,
            }
            for (request, _) in world.take_done() {
                *settled.entry(request).or_default() += 1;
            }
            prop_assert_eq!(world.link.pending(), asked.len() - settled.len());
        }
        prop_assert!(asked.keys().all(|request| settled.get(request) == Some(&1)), "{:?} of {:?}", settled, asked);
    }
}

/// The id of some rule.
fn rule() -> RuleId {
    let config = crate::config::Config::parse(br#"{"rules":[{"name":"r","key":["ip"],"limits":["1/s"]}]}"#).unwrap();
    crate::rules::Rules::new(&config).named("r").unwrap()
}

#[test]
fn a_page_is_in_line_with_the_calls_and_ends_with_the_stream() {
    let mut world = World::new();
    let fetch = |world: &mut World| {
        let mut asked = false;
        world.event(|link, _, out| asked = link.fetch(rule(), b"*1\r\n$8\r\nrl:page1\r\n".to_vec(), out));
        asked
    };
    assert!(!fetch(&mut world), "there is no stream");
    let mut world = World::connected();
    world.ask(1);
    assert!(fetch(&mut world));
    world.ask(2);
    world.receive(&[DENIED, b"*1\r\n$1\r\n0\r\n", ALLOWED].concat());
    assert_eq!(world.pages, [Ok(Reply::Texts(vec![b"0".to_vec()]))]);
    assert_eq!(world.take_done(), [(1, Ok(Outcome::Denied { retry_ms: 600 })), (2, Ok(Outcome::Allowed))]);
    assert!(fetch(&mut world));
    world.receive(b"-WRONGTYPE x\r\n");
    assert_eq!(world.pages[1..], [Err(Failure::Error("WRONGTYPE x".to_owned()))]);
    assert!(fetch(&mut world));
    world.close();
    assert_eq!(world.pages[2..], [Err(Failure::Disconnected)]);
    assert_eq!(world.counted.get(&Counter::Failure), None, "it fails no call");
}

#[test]
fn a_password_is_the_streams_first_command_and_a_wrong_one_ends_it() {
    let mut world = World::with(r#","auth":{"value":"weir:secret"}"#);
    world.ask(1);
    world.poll();
    assert_eq!(world.sent, ["AUTH -", "EVALSHA rl:greeting", "EVALSHA rl:{r:1}:tb:60000"]);
    world.receive(b"+OK\r\n");
    world.receive(GREETED);
    world.receive(ALLOWED);
    assert_eq!(world.take_done(), [(1, Ok(Outcome::Allowed))]);
    world.close();
    world.pass_ms(100);
    world.ask(2);
    world.poll();
    world.receive(b"-WRONGPASS invalid username-password pair\r\n-NOAUTH Authentication required.\r\n");
    assert!(world.reset, "the stream is given up");
    assert_eq!(world.take_done(), [(2, Err(Failure::Disconnected))]);
    let wrong = "disconnected: error reply: WRONGPASS invalid username-password pair";
    assert_eq!(world.told, ["connected", wrong]);
}
