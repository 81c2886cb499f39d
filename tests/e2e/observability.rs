//! What Prometheus and its dashboards make of Envoy's metrics.

use crate::beside_others;
use crate::servers::envoy_server::Setup;
use crate::servers::http_client;
use crate::servers::redis_server::Redis;
use crate::servers::{Process, free_port, until};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("envoy/observability").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(file(name)).unwrap()
}

#[test]
fn the_alerts_go_off_when_they_should_and_not_before() {
    for arguments in [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]] {
        let output = Command::new("promtool").args(arguments).current_dir(file("")).output().unwrap();
        let told = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && told.contains("SUCCESS"), "{told}");
    }
}

/// A Prometheus that asks an Envoy five times a second.
struct Prometheus {
    port: u16,
    directory: PathBuf,
    _process: Process,
}

impl Prometheus {
    fn start(admin: u16) -> Prometheus {
        let port = free_port();
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("prometheus-{}-{port}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let target = format!(
            "{{job_name: envoy, metrics_path: /stats/prometheus, static_configs: [{{targets: ['127.0.0.1:{admin}']}}]}}"
        );
        let global = "{scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 1s}";
        let alerts = file("alerts.yaml").display().to_string();
        let text = format!("global: {global}\nrule_files: ['{alerts}']\nscrape_configs: [{target}]\n");
        fs::write(directory.join("prometheus.yml"), text).unwrap();
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", directory.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(fs::File::create(directory.join("log")).unwrap());
        let process = Process::start(&mut command);
        let listens = || std::net::TcpStream::connect(("127.0.0.1", port)).ok().map(|_| ());
        until(Duration::from_secs(20), listens, || "Prometheus listens".to_owned());
        let ready = || (http_client::get(port, "/-/ready", &[]).status == 200).then_some(());
        until(Duration::from_secs(20), ready, || fs::read_to_string(directory.join("log")).unwrap());
        Prometheus { port, directory, _process: process }
    }

    fn get(&self, path: &str) -> Value {
        serde_json::from_str(&http_client::get(self.port, path, &[]).body).unwrap()
    }

    /// What a query gives, as values; none where it has no data yet.
    fn query(&self, query: &str) -> Vec<f64> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let answer = self.get(&format!("/api/v1/query?query={encoded}"));
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        let result = answer["data"]["result"].as_array().unwrap().iter();
        result.map(|series| series["value"][1].as_str().unwrap().parse().unwrap()).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The titles of a dashboard's panels with their queries.
fn queries() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap();
            let query = query.replace("$__rate_interval", "5s").replace("$__range", "5s").replace("$instance", ".*");
            assert!(!query.contains('$'), "{query}");
            queries.push((panel["title"].as_str().unwrap().to_owned(), query));
        }
    }
    queries
}

/// Metrics of ours in a text.
fn metrics_in(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let mut names: Vec<String> = words.filter(|word| word.starts_with("weir_")).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn every_query_of_the_dashboard_finds_what_envoy_tells() {
    let _machine = beside_others();
    let mut redis = Redis::start();
    let rules = r#"{"store":{"cluster":"weir-redis"},"rules":[
        {"name":"per-key","key":["header:x-api-key"],"limits":["5/s"]},
        {"name":"trial","key":["header:x-api-key"],"limits":["1/s"],"mode":"shadow"}]}"#;
    let envoy = Setup::redis(redis.port, rules).replace("admin:\n", &format!("{}admin:\n", read("stats.yaml"))).start();
    let prometheus = Prometheus::start(envoy.admin_port());
    let queries = queries();
    assert!(queries.len() > 25, "{}", queries.len());
    let traffic = || drop(envoy.statuses("a", 5));
    until(
        Duration::from_secs(30),
        || {
            traffic();
            queries.iter().all(|(_, query)| !prometheus.query(query).is_empty()).then_some(())
        },
        || {
            let silent: Vec<_> = queries.iter().filter(|(_, query)| prometheus.query(query).is_empty()).collect();
            format!("every query has data; without: {silent:#?}")
        },
    );
    let moves = |title: &str, query: &str| {
        let query = queries.iter().find(|(of, text)| of == title && text.contains(query)).unwrap().1.clone();
        until(
            Duration::from_secs(20),
            || {
                traffic();
                prometheus.query(&query).iter().any(|value| *value > 0.0).then_some(())
            },
            || format!("{title}: {query}: {:?}", prometheus.query(&query)),
        );
    };
    moves("Requests", "weir_rule_denied");
    moves("Shadow, held back, without key", "weir_rule_shadow_denied");
    moves("Denied share by rule", "weir_rule_denied");
    moves("Latency of Redis", "0.99");
    moves("Calls to Redis", "weir_store_requests");
    assert_eq!(prometheus.query("sum by (weir_rule) (weir_rule_denied)").len(), 2, "a series for each rule");
    redis.kill();
    moves("Fallback in use", "weir_rule_local_denied");
    moves("Calls to Redis", "weir_store_failures");
    // Whatever alerts, panels and the documents name is there, and whatever is there has a place in a panel.
    let known: Vec<String> = metrics_in(&http_client::get(envoy.admin_port(), "/stats/prometheus", &[]).body);
    let scraped = |name: &String| known.contains(name) || name == "weir_rule";
    let named = metrics_in(&(read("alerts.yaml") + &read("dashboard.json")));
    assert_eq!(named.iter().filter(|name| !scraped(name)).collect::<Vec<_>>(), Vec::<&String>::new());
    let shown = |name: &String| named.contains(name) || name.ends_with("_sum") || name.ends_with("_count");
    let of_ours = known.iter().filter(|name| name.as_str() != "weir_rule" && name.as_str() != "weir_store_latency_us");
    assert_eq!(of_ours.filter(|name| !shown(name)).collect::<Vec<_>>(), Vec::<&String>::new());
    let loaded = prometheus.get("/api/v1/rules");
    let alerts = loaded["data"]["groups"][0]["rules"].as_array().unwrap();
    assert_eq!(alerts.len(), read("alerts.yaml").matches("- alert: ").count());
    let evaluated = || {
        let loaded = prometheus.get("/api/v1/rules");
        let all = loaded["data"]["groups"][0]["rules"].as_array().unwrap().iter().all(|rule| rule["health"] == "ok");
        all.then_some(())
    };
    until(Duration::from_secs(20), evaluated, || format!("{}", prometheus.get("/api/v1/rules")));
}
