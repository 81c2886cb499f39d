//! The files in `envoy/`, as they are but for ports and paths.

use crate::beside_others;
use crate::servers::envoy_server::{Setup, wasm};
use crate::servers::redis_server::Redis;
use crate::servers::{Process, until};
use std::fs::{self, File};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What each sample's rule says: `60/min burst 5`.
pub(crate) const BURST: [u16; 7] = [200, 200, 200, 200, 200, 429, 429];

#[test]
fn the_quickstart_limits() {
    let _machine = beside_others();
    let envoy = Setup::sample("quickstart.yaml").start();
    assert_eq!(envoy.statuses("a", 7), BURST);
    assert!(envoy.accesses(1)[0].ends_with("subject=a source=local"));
}

#[test]
fn with_redis_it_limits() {
    let _machine = beside_others();
    for sample in ["redis.yaml", "redis-listener.yaml"] {
        let redis = Redis::start();
        let envoy = Setup::sample(sample).with_redis(redis.port).start();
        assert_eq!(envoy.statuses("a", 7), BURST, "{sample}");
        assert!(envoy.accesses(1)[0].ends_with("subject=a source=redis"), "{sample}");
    }
}

/// The lines of a file that are indented below the line `under`, without that indentation.
fn block(text: &str, under: &str) -> String {
    let lines: Vec<&str> = text.lines().skip_while(|line| line.trim_end() != under).skip(1).collect();
    let indent = lines[0].len() - lines[0].trim_start().len();
    let inside = lines.iter().take_while(|line| line.len() > indent && line[..indent].trim().is_empty());
    inside.map(|line| format!("{}\n", &line[indent..])).collect()
}

fn indented(text: &str, by: usize) -> String {
    text.lines().map(|line| format!("{}{line}\n", " ".repeat(by))).collect()
}

#[test]
fn what_the_istio_files_give_envoy_limits() {
    let _machine = beside_others();
    let read =
        |name: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("envoy/istio").join(name)).unwrap();
    let plugin = block(&read("wasmplugin.yaml"), "  pluginConfig:");
    let cluster = block(&read("cluster.yaml"), "      value:").replace("redis.default.svc.cluster.local", "127.0.0.1");
    let redis = Redis::start();
    // As Istio hands them to Envoy: the configuration as a Struct, the VM without a vm_id, the plugin's name as the root id.
    let cluster = cluster.replace("/etc/weir/weir.wasm", &wasm());
    let setup = Setup::sample("quickstart.yaml")
        .replace("                  vm_id: weir\n", "")
        .replace("  clusters:\n", &format!("  clusters:\n  - {}", indented(&cluster, 4).trim_start()))
        .with_redis(redis.port)
        .with_configuration("Struct", &format!("\n{}", indented(&plugin, 20)));
    let envoy = setup.start();
    assert_eq!(envoy.statuses("a", 7), BURST);
    assert!(envoy.accesses(1)[0].ends_with("subject=a source=redis"));
}

/// The ports that a text names.
fn ports(text: &str) -> Vec<u16> {
    let after = ["127.0.0.1:", "-p "].into_iter().flat_map(|mark| text.split(mark).skip(1));
    after.map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()).collect()
}

#[test]
fn make_run_shows_a_burst_and_leaves_nothing_running() {
    let _machine = beside_others();
    let listens = |port: &u16| TcpStream::connect(("127.0.0.1", *port)).is_ok();
    for (store, once) in [("redis", false), ("redis", true), ("local", true)] {
        let name = format!("run-{}-{store}-{once}", std::process::id());
        let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let shown = || fs::read_to_string(&output).unwrap();
        let mut command = Command::new("python3");
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("envoy/run.py")).args(["--store", store]);
        let mut run = Process::start(command.args(once.then_some("--once")).stdout(File::create(&output).unwrap()));
        if !once {
            let serving = || shown().contains("serving until Ctrl-C").then_some(());
            until(Duration::from_secs(30), serving, || format!("it serves:\n{}", shown()));
            assert!(ports(&shown()).iter().all(listens), "{}", shown());
            let interrupted = Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap();
            assert!(interrupted.success());
        }
        let status = until(Duration::from_secs(30), || run.ended(), || format!("it ends:\n{}", shown()));
        let text = shown();
        assert!(status.success(), "{text}");
        assert_eq!(ports(&text).len(), if store == "redis" { 4 } else { 3 }, "{text}");
        assert!(!ports(&text).iter().any(listens), "something is left running:\n{text}");
        let rows: Vec<Vec<&str>> =
            text.lines().filter(|line| line.starts_with("GET ")).map(|line| line.split_whitespace().collect()).collect();
        let statuses: Vec<&str> = rows.iter().map(|row| row[3]).collect();
        assert_eq!(statuses, ["200", "200", "200", "200", "200", "429", "429", "429"], "{text}");
        let sources: Vec<&str> = rows.iter().filter_map(|row| row.last().copied()).collect();
        // What Redis has denied once is denied without it.
        let last = if store == "redis" { "denial_cache" } else { store };
        assert_eq!(sources, [store, store, store, store, store, store, last, last], "{text}");
        fs::remove_file(output).unwrap();
    }
}
