//! What a request costs before anybody is asked: its headers read, rules found, conditions tried, subjects written.

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use weir_core::config::Config;
use weir_core::request::{Headers, Request, Unreadable};
use weir_core::rules::{LiveOverrides, Plan, Rules, Surroundings};

/// A request of an API, whose headers come in the host's format, as in the filter.
struct Get {
    pairs: Vec<u8>,
}

impl Get {
    fn new(host: &str, path: &str) -> Get {
        let lines = [
            (":authority", host),
            (":path", path),
            (":method", "GET"),
            (":scheme", "https"),
            ("user-agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/139.0 Safari/537.36"),
            ("accept", "application/json"),
            ("accept-encoding", "gzip, deflate, br"),
            ("accept-language", "en-GB,en;q=0.9"),
            ("x-api-key", "5f2c1f0e7a9d4c33"),
            ("x-forwarded-for", "198.51.100.7"),
            ("x-forwarded-proto", "https"),
            ("x-request-id", "0b0cf2a0-6a0f-4c1e-9a2e-1f7f5a6f2f11"),
        ];
        let number = |n: usize| u32::try_from(n).unwrap_or(0).to_le_bytes();
        let mut pairs = number(lines.len()).to_vec();
        lines.iter().for_each(|(name, value)| pairs.extend([number(name.len()), number(value.len())].concat()));
        for text in lines.iter().flat_map(|(name, value)| [name, value]) {
            pairs.extend(text.as_bytes());
            pairs.push(0);
        }
        Get { pairs }
    }
}

impl Request for Get {
    fn headers(&self) -> Headers {
        Headers::from_pairs(self.pairs.clone())
    }
    fn header(&self, name: &str) -> Option<Vec<u8>> {
        self.headers().get(name).map(|value| value.into_owned())
    }
    fn property(&self, _: &str) -> Result<Option<Vec<u8>>, Unreadable> {
        Ok(None)
    }
    fn evaluate(&self, _: &str) -> Option<Vec<u8>> {
        None
    }
}

/// Rules that count API keys, each with the conditions that `matching` gives it.
fn rules(count: usize, matching: impl Fn(usize) -> String) -> Rules {
    let rule = |i| {
        let conditions = matching(i);
        format!(r#"{{"name":"r{i}",{conditions}"key":["header:x-api-key"],"limits":["100/s"]}}"#)
    };
    let rules: Vec<String> = (0..count).map(rule).collect();
    match Config::parse(format!(r#"{{"rules":[{}]}}"#, rules.join(",")).as_bytes()) {
        Ok(config) => Rules::new(&config),
        Err(faults) => panic!("{faults:?}"),
    }
}

fn plan(criterion: &mut Criterion) {
    let host_and_path = |i| format!(r#""match":{{"hosts":["api{i}.example.com"],"path":{{"prefix":"/v{i}/orders"}}}},"#);
    let path = |i| format!(r#""match":{{"path":{{"prefix":"/v{i}/orders"}}}},"#);
    let host = |i| format!(r#""match":{{"hosts":["api{i}.example.com"]}},"#);
    let get = Get::new("api7.example.com", "/v7/orders/4711?full=1");
    let live = LiveOverrides::default();
    let around = Surroundings { route: None, live: &live, roll: 0 };
    let table = [
        ("1 rule for every request", rules(1, |_| String::new())),
        ("1 rule by host and path", rules(1, |_| host_and_path(7))),
        ("1,000 rules by host and path", rules(1000, host_and_path)),
        ("1,000 rules by path", rules(1000, path)),
        ("1,000 rules by host", rules(1000, host)),
    ];
    for (name, rules) in &table {
        assert!(matches!(rules.plan(&get, around), Plan::Checks(checks) if checks.checks.len() == 1), "{name}");
        criterion.bench_function(name, |bencher| bencher.iter(|| black_box(rules.plan(black_box(&get), around))));
    }
}

criterion_group!(benches, plan);
criterion_main!(benches);
