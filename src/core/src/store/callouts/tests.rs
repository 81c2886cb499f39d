use super::*;
use crate::limit::{Limit, Outcome};
use crate::store::client::tests::store_with;
use crate::store::{HttpCall, LimitCall, Ticket};

const ALLOWED: &[u8] = b"*4\r\n:1\r\n:2\r\n:0\r\n:600\r\n";
const DENIED: &[u8] = b"*4\r\n:0\r\n:0\r\n:600\r\n:1800\r\n";
const JSON: &[u8] = br#"{"EVALSHA":[1,2,0,600]}"#;
const NOSCRIPT: &[u8] = b"-NOSCRIPT No matching script.\r\n";

/// Callouts with a clock and somebody who makes them.
struct World {
    callouts: Callouts,
    now_us: u64,
    /// Those under way, by their numbers.
    made: Vec<(u32, HttpCall)>,
    numbers: u32,
    done: Vec<((u32, u16), Result<Outcome, Failure>)>,
    counted: HashMap<Counter, u32>,
    pages: Vec<Result<Reply, Failure>>,
    told: Vec<String>,
    /// Whether callouts can be made.
    reachable: bool,
    /// The event is a callout's answer.
    answering: bool,
}

impl World {
    fn new(transport: &str) -> World {
        World {
            callouts: Callouts::new(&store_with(&format!(r#","transport":"{transport}","auth":{{"value":"u:p"}}"#)), 7),
            now_us: 1_000_000,
            made: Vec::new(),
            numbers: 0,
            done: Vec::new(),
            counted: HashMap::new(),
            pages: Vec::new(),
            told: Vec::new(),
            reachable: true,
            answering: false,
        }
    }

    /// An event, and the turn that it asks for.
    fn event(&mut self, event: impl FnOnce(&mut Callouts, u64, &mut Vec<Effect>)) {
        let mut out = Vec::new();
        event(&mut self.callouts, self.now_us, &mut out);
        assert!(
            !self.answering || !out.iter().any(|effect| matches!(effect, Effect::Dispatch(_))),
            "in an answer's callback"
        );
        self.answering = false;
        let mut todo = VecDeque::from(out);
        while let Some(effect) = todo.pop_front() {
            match effect {
                Effect::Wake => {
                    let mut more = Vec::new();
                    self.callouts.poll(self.now_us, &mut more);
                    todo.extend(more);
                }
                Effect::Dispatch(call) => {
                    self.numbers += 1;
                    let number = self.reachable.then_some(self.numbers);
                    if let Some(number) = number {
                        self.made.push((number, call));
                    }
                    let mut more = Vec::new();
                    self.callouts.dispatched(number, self.now_us, &mut more);
                    todo.extend(more);
                }
                Effect::Done { ticket, result, .. } => {
                    let Ticket::Request { id, part } = ticket else { panic!("{ticket:?}") };
                    self.done.push(((id, part), result.map(|verdicts| verdicts[0].outcome)));
                }
                Effect::Page { reply, .. } => self.pages.push(reply),
                Effect::Connected => self.told.push("connected".to_owned()),
                Effect::Disconnected(failure) => self.told.push(format!("disconnected: {failure}")),
                Effect::Count(counter) => *self.counted.entry(counter).or_default() += 1,
                Effect::Open | Effect::Send(_) | Effect::Reset => panic!("a stream"),
            }
        }
    }

    fn ask(&mut self, request: u32, calls: u16) {
        let limit = Limit::token_bucket(100, 60_000, 3).unwrap();
        let pending = |part| {
            let key = format!("rl:{{r:{request}-{part}}}:tb:60000").into_bytes();
            let call = Call::new(&[LimitCall { key, limit: &limit, cost: 1 }]);
            Pending { ticket: Ticket::Request { id: request, part }, call, since_us: self.now_us }
        };
        let calls = (0..calls).map(pending).collect();
        self.event(|callouts, now, out| callouts.ask(calls, now, out));
    }

    /// The oldest callout ends with this.
    fn answer(&mut self, reply: HttpReply<'_>) {
        let (number, _) = self.made.remove(0);
        self.answering = true;
        self.event(|callouts, now, out| callouts.answered(number, reply, now, out));
    }

    fn answer_resp(&mut self, replies: &[&[u8]]) {
        let body = [b"+OK\r\n", replies.concat().as_slice()].concat();
        self.answer(Some((200, &body)));
    }

    fn pass_ms(&mut self, ms: u64) {
        for _ in 0..ms / 10 {
            self.now_us += 10_000;
            if self.callouts.poll_every_ms() > 0 {
                self.event(Callouts::poll);
            }
        }
    }

    fn take_done(&mut self) -> Vec<((u32, u16), Result<Outcome, Failure>)> {
        std::mem::take(&mut self.done)
    }

    fn count(&self, counter: Counter) -> u32 {
        self.counted.get(&counter).copied().unwrap_or(0)
    }

    /// The breaker opens.
    fn broken() -> World {
        let mut world = World::new("redis-call");
        for request in 0..5 {
            world.ask(request, 1);
            world.answer(None);
        }
        assert_eq!(world.count(Counter::BreakerOpen), 1);
        world.take_done();
        world
    }
}

#[test]
fn the_calls_of_a_request_go_out_together_and_each_gets_its_own_reply() {
    let mut world = World::new("redis-call");
    world.ask(1, 2);
    world.ask(2, 1);
    assert_eq!(world.made.len(), 2);
    world.answer_resp(&[ALLOWED, DENIED]);
    world.answer_resp(&[ALLOWED]);
    let denied = Outcome::Denied { retry_ms: 600 };
    assert_eq!(world.take_done(), [((1, 0), Ok(Outcome::Allowed)), ((1, 1), Ok(denied)), ((2, 0), Ok(Outcome::Allowed))]);
    assert_eq!((world.callouts.pending(), world.callouts.poll_every_ms()), (0, 0));
    assert_eq!((world.count(Counter::Request), world.told.as_slice()), (3, &["connected".to_owned()][..]));
}

#[test]
fn webdis_is_asked_by_a_callout_for_each_call() {
    let mut world = World::new("webdis");
    world.ask(1, 2);
    assert_eq!(world.made.len(), 2);
    world.answer(Some((200, JSON)));
    world.answer(Some((200, JSON)));
    assert_eq!(world.take_done().len(), 2);
}

#[test]
fn only_what_redis_does_not_know_is_sent_again_and_that_once() {
    let mut world = World::new("redis-call");
    world.ask(1, 2);
    world.now_us += 20_000;
    world.answer_resp(&[ALLOWED, NOSCRIPT]);
    assert_eq!(world.take_done(), [((1, 0), Ok(Outcome::Allowed))]);
    let again = String::from_utf8(world.made[0].1.body.clone()).unwrap();
    assert!(again.contains("\r\nEVAL\r\n") && again.contains("{r:1-1}") && !again.contains("{r:1-0}"), "{again}");
    assert_eq!(world.made[0].1.timeout_ms, 30, "in what is left of its time");
    world.answer_resp(&[NOSCRIPT]);
    assert!(matches!(world.take_done().as_slice(), [((1, 1), Err(Failure::Error(_)))]));
    assert_eq!((world.made.len(), world.count(Counter::Noscript)), (0, 1));
}

#[test]
fn a_call_whose_time_is_up_is_settled_and_its_late_answer_is_nobodys() {
    let mut world = World::new("redis-call");
    world.ask(1, 1);
    world.pass_ms(40);
    assert!(world.take_done().is_empty());
    world.pass_ms(10);
    assert_eq!(world.take_done(), [((1, 0), Err(Failure::Timeout))]);
    world.answer_resp(&[ALLOWED]);
    assert!(world.take_done().is_empty());
    assert_eq!((world.count(Counter::Timeout), world.count(Counter::Failure), world.callouts.pending()), (1, 1, 0));
}

#[test]
fn a_host_that_ends_a_callout_at_its_deadline_has_timed_it_out() {
    for reply in [None, Some((504, &b"upstream request timeout"[..]))] {
        let mut world = World::new("webdis");
        world.ask(1, 1);
        world.now_us += 50_000;
        world.answer(reply);
        assert_eq!(world.take_done(), [((1, 0), Err(Failure::Timeout))]);
        assert_eq!(world.count(Counter::Timeout), 1);
    }
}

#[test]
fn what_can_not_be_called_fails_at_once() {
    let mut world = World::new("webdis");
    world.reachable = false;
    world.ask(1, 2);
    assert_eq!(world.take_done(), [((1, 0), Err(Failure::Disconnected)), ((1, 1), Err(Failure::Disconnected))]);
    assert_eq!(world.callouts.pending(), 0);
}

#[test]
fn while_the_breaker_is_open_greetings_look_whether_redis_is_back() {
    let mut world = World::broken();
    world.ask(9, 1);
    assert_eq!(world.take_done(), [((9, 0), Err(Failure::BreakerOpen))]);
    world.pass_ms(30);
    let greeting = String::from_utf8(world.made[0].1.body.clone()).unwrap();
    assert!(greeting.contains("rl:greeting"), "{greeting}");
    world.answer(Some((503, b"")));
    world.pass_ms(20);
    assert!(world.made.is_empty(), "the next one waits longer");
    world.pass_ms(40);
    world.answer_resp(&[NOSCRIPT]);
    world.ask(10, 1);
    world.answer_resp(&[ALLOWED]);
    assert_eq!(world.take_done(), [((10, 0), Ok(Outcome::Allowed))]);
    assert_eq!(world.told, ["disconnected: no connection", "connected"]);
    world.pass_ms(1000);
    assert_eq!((world.made.len(), world.callouts.poll_every_ms()), (0, 0), "and then no more of them");
}

#[test]
fn a_greeting_with_no_answer_is_followed_by_another() {
    let mut world = World::broken();
    for _ in 0..20 {
        world.pass_ms(100);
    }
    assert!((4..=16).contains(&world.made.len()), "{}", world.made.len());
}

#[test]
fn a_greeting_that_redis_refuses_is_no_sign_of_it() {
    let mut world = World::broken();
    world.pass_ms(30);
    world.answer_resp(&[b"-LOADING Redis is loading the dataset in memory\r\n"]);
    world.ask(9, 1);
    assert_eq!(world.take_done(), [((9, 0), Err(Failure::BreakerOpen))]);
}

#[test]
fn no_more_calls_wait_than_can() {
    let mut world = World::new("webdis");
    let most = u32::try_from(MAX_WAITING).unwrap();
    for request in 0..most {
        world.ask(request, 1);
    }
    assert!(world.take_done().is_empty());
    world.ask(most, 1);
    assert_eq!(world.take_done(), [((most, 0), Err(Failure::Overloaded))]);
    world.answer(Some((200, JSON)));
    world.ask(most, 1);
    assert_eq!(world.take_done(), [((0, 0), Ok(Outcome::Allowed))]);
    world.pass_ms(50);
    assert_eq!((world.take_done().len(), world.callouts.pending()), (MAX_WAITING, 0));
}

#[test]
fn a_page_of_overrides_is_a_callout_too() {
    let mut world = World::new("upstash");
    let mut sent = false;
    let config = crate::config::Config::parse(br#"{"rules":[{"name":"r","key":["ip"],"limits":["1/s"]}]}"#).unwrap();
    let rule = crate::rules::Rules::new(&config).named("r").unwrap();
    let command = b"*2\r\n$4\r\nEVAL\r\n$1\r\nx\r\n".to_vec();
    world.event(|callouts, now, out| sent = callouts.fetch(rule, command.clone(), now, out));
    assert!(sent);
    world.answer(Some((200, br#"{"result":["0","acme","5/s"]}"#)));
    let page = Reply::Texts(vec![b"0".to_vec(), b"acme".to_vec(), b"5/s".to_vec()]);
    assert_eq!(world.pages, [Ok(page)]);
    world.event(|callouts, now, out| sent = callouts.fetch(rule, command, now, out));
    world.answer(None);
    assert_eq!(world.pages[1], Err(Failure::Disconnected));
}
