//! Load and faults at random, for as long as one wants: `make soak`. Every `make test` does it for some seconds.

use crate::alone;
use crate::faults::{Chain, ON_ERROR, TIMEOUT, TRANSPORTS};
use crate::servers::envoy_server::Envoy;
use crate::servers::faulty::Mode;
use crate::servers::http_client::Client;
use crate::servers::until;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_core::dice::Dice;

/// How much more memory Envoy may take at the end than after the first third.
const GROWTH: u64 = 16 << 20;

/// What became of a client's requests.
#[derive(Default)]
struct Answers {
    /// By `on_error`.
    answered: [u64; 3],
    /// It went away before the answer.
    gone: u64,
    late: u64,
    slowest: Duration,
}

/// A number below that one.
fn below(dice: &Dice, end: u64) -> u64 {
    dice.draw() % end
}

/// A client that asks until it is told to stop: every request must be answered, and as its rule says.
fn client(port: u16, seed: u64, stop: &AtomicBool) -> Answers {
    let (dice, mut answers, mut client) = (Dice::new(seed), Answers::default(), Client::connect(port));
    while !stop.load(Ordering::Relaxed) {
        let which = usize::try_from(below(&dice, 3)).unwrap();
        let (path, key) = (format!("/{}", ON_ERROR[which]), format!("s{}", below(&dice, 100_000)));
        let headers = [("x-api-key", key.as_bytes())];
        if below(&dice, 20) == 0 {
            Client::connect(port).send(&path, &headers).unwrap(); // and here it goes away
            answers.gone += 1;
        } else {
            let start = Instant::now();
            let answer = client.get(&path, &headers).expect("every request is answered");
            let took = start.elapsed();
            assert!(answer.status == 200 || answer.status == 503 && ON_ERROR[which] == "deny", "{path}: {answer:?}");
            answers.answered[which] += 1;
            answers.late += u64::from(took > TIMEOUT + Duration::from_millis(20));
            answers.slowest = answers.slowest.max(took);
        }
        std::thread::sleep(Duration::from_micros(below(&dice, 4000)));
    }
    answers
}

/// What each rule's counters say of its requests.
fn counted(envoy: &Envoy) -> [u64; 3] {
    let metrics = envoy.metrics();
    ON_ERROR.map(|rule| {
        let counter = |name: &str| metrics[&format!("rule.{rule}.{name}")];
        // What `on_error: deny` refuses is an error and not a denial; what the others let in is both.
        counter("allowed") + counter("denied") + if rule == "deny" { counter("errors") } else { 0 }
    })
}

/// Something else happens to the backend, every now and then.
fn misfortunes(chain: &mut Chain, dice: &Dice, end: Instant) -> u64 {
    let mut modes: Vec<Mode> = chain.faults().into_iter().map(|(_, mode)| mode).collect();
    modes.push(Mode::Late(TIMEOUT / 3));
    let mut happened = 0;
    while Instant::now() < end {
        match below(dice, 10) {
            0 => {
                chain.redis.kill();
                std::thread::sleep(Duration::from_millis(below(dice, 500)));
                chain.redis.restart();
            }
            1 => drop(chain.redis.run(&["SCRIPT", "FLUSH"])),
            2 => drop(chain.redis.run(&["CLIENT", "KILL", "TYPE", "normal"])),
            3..8 => chain.backend.is(modes[usize::try_from(below(dice, modes.len() as u64)).unwrap()].clone()),
            _ => {}
        }
        happened += 1;
        std::thread::sleep(Duration::from_millis(below(dice, 600)));
        chain.backend.is(Mode::Pass);
        std::thread::sleep(Duration::from_millis(below(dice, 600)));
    }
    happened
}

fn soak(transport: &'static str, seed: u64, seconds: u64) -> String {
    println!("{transport}: seed {seed}");
    let mut chain = Chain::start(transport, TIMEOUT);
    let (before, port) = (counted(&chain.envoy), chain.envoy.port);
    let (stop, dice) = (AtomicBool::new(false), Dice::new(seed));
    let (all, memory, happened) = std::thread::scope(|scope| {
        let told = &stop;
        let clients: Vec<_> = (1..4).map(|at| scope.spawn(move || client(port, seed + at, told))).collect();
        let stop = crate::StopAtEnd(&stop);
        let start = Instant::now();
        let mut happened = misfortunes(&mut chain, &dice, start + Duration::from_secs(seconds) / 3);
        let memory = chain.envoy.resident_bytes();
        happened += misfortunes(&mut chain, &dice, start + Duration::from_secs(seconds));
        drop(stop);
        let all: Vec<Answers> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        (all, memory, happened)
    });
    chain.recovers("the soak", Duration::from_secs(1));
    let pending = || chain.envoy.metric("store.pending") + chain.envoy.statistic("http.ingress.downstream_rq_active");
    until(Duration::from_secs(5), || (pending() == 0).then_some(()), || format!("{transport}: {} wait", pending()));
    let gone: u64 = all.iter().map(|answers| answers.gone).sum();
    for (at, (before, counted)) in before.into_iter().zip(counted(&chain.envoy)).enumerate() {
        let answered: u64 = all.iter().map(|answers| answers.answered[at]).sum();
        let counted = counted - before;
        // The way back asks a rule some times more.
        let most = answered + gone + if ON_ERROR[at] == "deny" { 500 } else { 0 };
        assert!(
            (answered..=most).contains(&counted),
            "{transport}, {}: {answered} answered, {counted} counted",
            ON_ERROR[at]
        );
    }
    let grown = chain.envoy.resident_bytes().saturating_sub(memory);
    assert!(grown <= GROWTH, "{transport}: {grown} bytes more than {memory}");
    let answered: u64 = all.iter().flat_map(|answers| answers.answered).sum();
    let late: u64 = all.iter().map(|answers| answers.late).sum();
    let slowest = all.iter().map(|answers| answers.slowest).max().unwrap();
    assert!(late * 100 <= answered && slowest < Duration::from_secs(1), "{transport}: {late} of {answered}, {slowest:?}");
    let memory = memory >> 20;
    format!(
        "{transport}: {answered} requests answered, {gone} gone, {happened} misfortunes, {late} later than the timeout and 20 ms \
         ({slowest:?}), {memory} MiB and {} KiB more",
        grown >> 10
    )
}

#[test]
fn under_load_and_faults_at_random_every_request_is_answered_and_memory_is_flat() {
    let _machine = alone();
    let seconds = std::env::var("WEIR_SOAK_SECONDS").map_or(10, |seconds| seconds.parse().unwrap());
    std::thread::scope(|scope| {
        let mut seed = u64::from(std::process::id()) * 100;
        let all = TRANSPORTS.map(|transport| {
            seed += 10;
            scope.spawn(move || soak(transport, seed, seconds))
        });
        all.into_iter().for_each(|soak| println!("{}", soak.join().unwrap()));
    });
}
