use super::*;
use crate::config::Config;
use crate::request::Sample;
use crate::rules::{LiveOverrides, Plan, Rules, Surroundings};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

/// Shared data as a host keeps it.
#[derive(Default)]
struct Table {
    slots: Mutex<HashMap<u32, (Vec<u8>, u32)>>,
    broken: bool,
}

impl SharedData for Table {
    fn read(&self, slot: u32) -> Result<(Vec<u8>, u32), Unavailable> {
        if self.broken {
            return Err(Unavailable);
        }
        Ok(self.slots.lock().unwrap().get(&slot).cloned().unwrap_or_default())
    }
    fn write(&self, slot: u32, bytes: &[u8], read: u32) -> Result<bool, Unavailable> {
        let mut slots = self.slots.lock().unwrap();
        let (value, number) = slots.entry(slot).or_default();
        let unread = *number == read;
        if unread {
            (*value, *number) = (bytes.to_vec(), read + 1);
        }
        Ok(unread)
    }
}

/// Somebody else writes each slot between our reads and our writes, so many times.
#[derive(Default)]
struct Contended {
    table: Table,
    times: Cell<usize>,
    writes: RefCell<usize>,
}

impl SharedData for Contended {
    fn read(&self, slot: u32) -> Result<(Vec<u8>, u32), Unavailable> {
        self.table.read(slot)
    }
    fn write(&self, slot: u32, bytes: &[u8], read: u32) -> Result<bool, Unavailable> {
        *self.writes.borrow_mut() += 1;
        if self.times.get() > 0 {
            self.times.set(self.times.get() - 1);
            return Ok(false);
        }
        self.table.write(slot, bytes, read)
    }
}

fn subject(value: &str) -> Subject {
    let config = br#"{"rules":[{"name":"r","key":["header:k"],"limits":["1/s"]}]}"#;
    let around = Surroundings { route: None, live: &LiveOverrides::default(), roll: 0 };
    match Rules::new(&Config::parse(config).unwrap()).plan(&Sample::new([("k", value)]), around) {
        Plan::Checks(mut checks) => checks.checks.remove(0).subject,
        plan => panic!("{plan:?}"),
    }
}

fn limit(count: u64, burst: u64) -> Limit {
    Limit::token_bucket(count, 60_000, burst).unwrap()
}

fn outcomes(verdicts: Result<Vec<Verdict>, Unavailable>) -> Vec<Outcome> {
    verdicts.unwrap().into_iter().map(|verdict| verdict.outcome).collect()
}

/// Whether a subject's charge on the rule `r` is let in.
fn passes(data: &impl SharedData, subject: &Subject, limit: &Limit, now_ms: u64) -> bool {
    outcomes(charge_all(data, &[Charge::new("r", subject, limit, 1)], now_ms)) == [Outcome::Allowed]
}

#[test]
fn a_subject_has_its_bucket_and_no_other_ones() {
    let (data, limit) = (Table::default(), limit(60, 2));
    let (one, other) = (subject("one"), subject("other"));
    let passed: Vec<bool> = (0..3).map(|_| passes(&data, &one, &limit, 0)).collect();
    assert_eq!(passed, [true, true, false]);
    assert!(passes(&data, &other, &limit, 0));
    assert!(!passes(&data, &one, &limit, 999));
    assert!(passes(&data, &one, &limit, 1000));
}

#[test]
fn all_are_charged_or_none() {
    let data = Table::default();
    let (one, wide, narrow) = (subject("one"), limit(60, 10), limit(60, 1));
    let both = || [Charge::new("wide", &one, &wide, 1), Charge::new("narrow", &one, &narrow, 1)];
    assert_eq!(outcomes(charge_all(&data, &both(), 0)), [Outcome::Allowed, Outcome::Allowed]);
    assert_eq!(outcomes(charge_all(&data, &both(), 0)), [Outcome::Allowed, Outcome::Denied { retry_ms: 1000 }]);
    let left = charge_all(&data, &[Charge::new("wide", &one, &wide, 0)], 0).unwrap()[0].remaining;
    assert_eq!(left, 9, "the denied request took nothing");
}

#[test]
fn what_a_worker_gets_ahead_with_is_given_back() {
    // Somebody takes the narrow bucket's last token between the look and the charge.
    struct Racing<'t>(&'t Table, Cell<usize>, &'t Subject, &'t Limit);
    impl SharedData for Racing<'_> {
        fn read(&self, slot: u32) -> Result<(Vec<u8>, u32), Unavailable> {
            self.1.set(self.1.get() + 1);
            if self.1.get() == 4 {
                assert!(outcomes(charge_all(self.0, &[Charge::new("narrow", self.2, self.3, 1)], 0)) == [Outcome::Allowed]);
            }
            self.0.read(slot)
        }
        fn write(&self, slot: u32, bytes: &[u8], read: u32) -> Result<bool, Unavailable> {
            self.0.write(slot, bytes, read)
        }
    }
    let data = Table::default();
    let (one, wide, narrow) = (subject("one"), limit(60, 10), limit(60, 1));
    let racing = Racing(&data, Cell::new(0), &one, &narrow);
    let both = [Charge::new("wide", &one, &wide, 3), Charge::new("narrow", &one, &narrow, 1)];
    assert_eq!(outcomes(charge_all(&racing, &both, 0)), [Outcome::Allowed, Outcome::Denied { retry_ms: 1000 }]);
    let left = charge_all(&data, &[Charge::new("wide", &one, &wide, 0)], 0).unwrap()[0].remaining;
    assert_eq!(left, 10);
}

#[test]
fn threads_at_once_admit_exactly_the_limit() {
    let (data, one, limit) = (Table::default(), subject("one"), limit(60, 100));
    let admitted: usize = std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..8).map(|_| scope.spawn(|| (0..200).filter(|_| passes(&data, &one, &limit, 0)).count())).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    assert_eq!(admitted, 100);
}

#[test]
fn a_write_is_tried_again_but_not_for_ever() {
    let (one, limit) = (subject("one"), limit(60, 2));
    let data = Contended { times: Cell::new(ATTEMPTS - 1), ..Contended::default() };
    assert!(passes(&data, &one, &limit, 0));
    let data = Contended { times: Cell::new(usize::MAX), ..Contended::default() };
    let verdicts = charge_all(&data, &[Charge::new("r", &one, &limit, 1)], 0);
    assert_eq!(outcomes(verdicts), [Outcome::Denied { retry_ms: 1 }]);
    assert_eq!(*data.writes.borrow(), ATTEMPTS);
}

#[test]
fn shared_data_that_does_not_work_is_told_apart() {
    let data = Table { broken: true, ..Table::default() };
    let (one, limit) = (subject("one"), limit(60, 2));
    assert_eq!(charge_all(&data, &[Charge::new("r", &one, &limit, 1)], 0), Err(Unavailable));
}

#[test]
fn a_hundred_thousand_subjects_fit_and_an_honest_client_is_still_limited() {
    let (data, limit) = (Table::default(), limit(1, 5));
    let honest = subject("honest");
    let passed = (0..5).filter(|_| passes(&data, &honest, &limit, 0)).count();
    assert_eq!(passed, 5);
    let mut sizes = BTreeMap::new();
    for i in 0..100_000 {
        passes(&data, &subject(&format!("s{i}")), &limit, 1);
        if i % 25_000 == 24_999 {
            let slots = data.slots.lock().unwrap();
            sizes.insert(i, slots.values().map(|(bytes, _)| bytes.len()).sum::<usize>());
        }
    }
    assert!(data.slots.lock().unwrap().len() <= SLOTS as usize);
    assert!(sizes.values().all(|size| *size <= SLOTS as usize * (1 + MAX_BUCKETS * 48)), "{sizes:?}");
    assert!(!passes(&data, &honest, &limit, 2), "it has taken the most, and so it is kept");
}

#[test]
fn a_clock_that_steps_back_neither_refills_nor_locks_out() {
    let (data, one, limit) = (Table::default(), subject("one"), limit(60, 1));
    assert!(passes(&data, &one, &limit, 10_000_000));
    assert!(!passes(&data, &one, &limit, 5_000));
    assert!(passes(&data, &one, &limit, 6_000), "a second later, not ten thousand");
}

#[test]
fn bytes_of_another_version_are_an_empty_slot() {
    let (data, one, limit) = (Table::default(), subject("one"), limit(60, 1));
    let slot = BucketId::of("r", &one, &limit).slot();
    for bytes in [vec![], vec![0; 49], vec![255; 1000], vec![1; 30]] {
        data.slots.lock().unwrap().insert(slot, (bytes, 1));
        assert!(passes(&data, &one, &limit, 0));
        assert!(!passes(&data, &one, &limit, 0));
    }
}
