//! Reads the live overrides of rules from Redis: each rule's hash as often as it says, page by page, and no page too big.

use super::call::command;
use super::{Failure, Reply, script};
use crate::rules::{MAX_LIVE, RuleId, Rules};

/// How many fields a page has, about, and the most bytes of a field and of a value.
const PAGE: u64 = 500;
const LONGEST_FIELD: u64 = 128;
const LONGEST_VALUE: u64 = 256;

/// How long after a failure the next try comes, in microseconds.
const AFTER_FAILURE_US: u64 = 1_000_000;

/// What is to be read, and what is under way.
#[derive(Debug)]
pub struct Overrides {
    rules: Vec<Hash>,
}

/// The hash of one rule.
#[derive(Debug)]
struct Hash {
    rule: RuleId,
    key: String,
    every_us: u64,
    due_us: u64,
    /// What has been read of it, while that goes on.
    read: Option<Vec<(String, String)>>,
}

/// What a page has come to.
#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    /// There is more: send this.
    More(Vec<u8>),
    /// That was all: subjects and their limits.
    All(Vec<(String, String)>),
    /// What was known before goes on.
    Failed(Failure),
}

impl Overrides {
    /// All that these rules have in Redis. Everything is due at once.
    pub fn new(rules: &Rules, key_prefix: &str) -> Overrides {
        let hashes = rules.iter().filter_map(|(id, rule)| {
            let every_us = rule.live_every_ms?.saturating_mul(1000);
            Some(Hash { rule: id, key: format!("{key_prefix}:overrides:{}", rule.name), every_us, due_us: 0, read: None })
        });
        Overrides { rules: hashes.collect() }
    }

    /// What is to be read now: `send` is given each rule and a command, and says whether it went out.
    pub fn start(&mut self, now_us: u64, mut send: impl FnMut(RuleId, Vec<u8>) -> bool) {
        for hash in self.rules.iter_mut().filter(|hash| hash.read.is_none() && now_us >= hash.due_us) {
            if send(hash.rule, hash.command(b"0")) {
                hash.read = Some(Vec::new());
            }
        }
    }

    /// Whether something is to be read now.
    pub fn is_due(&self, now_us: u64) -> bool {
        self.rules.iter().any(|hash| hash.read.is_none() && now_us >= hash.due_us)
    }

    /// Takes a page of a rule's.
    pub fn page(&mut self, rule: RuleId, reply: Result<Reply, Failure>, now_us: u64) -> Read {
        let odd = Read::Failed(Failure::BadReply("not a page of live overrides"));
        let Some(hash) = self.rules.iter_mut().find(|hash| hash.rule == rule) else { return odd };
        let Some(mut read) = hash.read.take() else { return odd };
        hash.due_us = now_us.saturating_add(hash.every_us.min(AFTER_FAILURE_US));
        let texts = match reply {
            Ok(Reply::Texts(texts)) => texts,
            Ok(_) => return odd,
            Err(failure) => return Read::Failed(failure),
        };
        let Some((cursor, fields)) = texts.split_first().filter(|(_, fields)| fields.len().is_multiple_of(2)) else {
            return odd;
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        read.extend(fields.chunks_exact(2).filter_map(|pair| match pair {
            [field, value] => Some((text(field), text(value))),
            _ => None,
        }));
        if cursor == b"0" || read.len() > MAX_LIVE {
            hash.due_us = now_us.saturating_add(hash.every_us);
            return Read::All(read);
        }
        hash.read = Some(read);
        Read::More(hash.command(cursor))
    }

    /// Milliseconds until something is due, at least 1; 0 where nothing will be, or what is due is under way.
    pub fn wait_ms(&self, now_us: u64) -> u32 {
        let due = self.rules.iter().filter(|hash| hash.read.is_none()).map(|hash| hash.due_us).min();
        due.map_or(0, |due_us| u32::try_from(due_us.saturating_sub(now_us).div_ceil(1000).max(1)).unwrap_or(u32::MAX))
    }
}

impl Hash {
    fn command(&self, cursor: &[u8]) -> Vec<u8> {
        let [page, field, value] = [PAGE, LONGEST_FIELD, LONGEST_VALUE].map(|limit| limit.to_string());
        let (script, key) = (script::OVERRIDES.as_bytes(), self.key.as_bytes());
        command(&[b"EVAL", script, b"1", key, cursor, page.as_bytes(), field.as_bytes(), value.as_bytes()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn overrides() -> (Overrides, RuleId) {
        let text = r#"{"store":{"cluster":"c"},"rules":[
            {"name":"a","key":["ip"],"limits":["1/s"]},
            {"name":"b","key":["ip"],"limits":["1/s"],"live_overrides":{"every":"10s"}}]}"#;
        let rules = Rules::new(&Config::parse(text.as_bytes()).unwrap());
        (Overrides::new(&rules, "rl"), rules.named("b").unwrap())
    }

    fn texts(texts: &[&str]) -> Result<Reply, Failure> {
        Ok(Reply::Texts(texts.iter().map(|text| text.as_bytes().to_vec()).collect()))
    }

    fn pair(subject: &str, limits: &str) -> (String, String) {
        (subject.to_owned(), limits.to_owned())
    }

    fn started(overrides: &mut Overrides, now_us: u64, open: bool) -> Vec<String> {
        let mut sent = Vec::new();
        overrides.start(now_us, |_, command| {
            sent.push(String::from_utf8(command).unwrap());
            open
        });
        sent
    }

    #[test]
    fn a_hash_is_read_to_its_end_and_again_after_its_time() {
        let (mut overrides, b) = overrides();
        assert_eq!(started(&mut overrides, 5, false).len(), 1, "it is due at once");
        let sent = started(&mut overrides, 5, true);
        assert!(
            sent[0].starts_with("*8\r\n$4\r\nEVAL\r\n") && sent[0].contains("\r\nrl:overrides:b\r\n$1\r\n0\r\n"),
            "{sent:?}"
        );
        assert_eq!((started(&mut overrides, 6, true).len(), overrides.wait_ms(6)), (0, 0), "it is under way");
        let Read::More(next) = overrides.page(b, texts(&["17", "acme", "5/s"]), 10) else { panic!("there is more") };
        assert!(String::from_utf8(next).unwrap().contains("\r\nrl:overrides:b\r\n$2\r\n17\r\n"));
        let all = Read::All(vec![pair("acme", "5/s"), pair("zoo", "unlimited")]);
        assert_eq!(overrides.page(b, texts(&["0", "zoo", "unlimited"]), 20), all);
        assert_eq!((started(&mut overrides, 10_000_019, true).len(), overrides.wait_ms(20)), (0, 10_000));
        assert_eq!(started(&mut overrides, 10_000_020, true).len(), 1);
        assert_eq!(overrides.page(b, texts(&["0"]), 30), Read::All(Vec::new()));
    }

    #[test]
    fn a_failure_is_tried_again_after_a_second() {
        let bad =
            [Err(Failure::Disconnected), Ok(Reply::Other), Ok(Reply::Integers(vec![])), texts(&[]), texts(&["0", "acme"])];
        for reply in bad {
            let (mut overrides, b) = overrides();
            started(&mut overrides, 0, true);
            assert!(matches!(overrides.page(b, reply, 0), Read::Failed(_)));
            assert_eq!(overrides.wait_ms(0), 1000);
            assert!(matches!(overrides.page(b, texts(&["0"]), 0), Read::Failed(_)), "nothing was asked");
        }
    }

    #[test]
    fn a_hash_without_an_end_is_read_to_the_limit() {
        let (mut overrides, b) = overrides();
        started(&mut overrides, 0, true);
        let page: Vec<&str> = std::iter::once("9").chain(std::iter::repeat_n("x", 1000)).collect();
        for _ in 0..20 {
            assert!(matches!(overrides.page(b, texts(&page), 0), Read::More(_)));
        }
        let Read::All(read) = overrides.page(b, texts(&page), 0) else { panic!("it goes on") };
        assert_eq!(read.len(), MAX_LIVE + 500);
    }
}
