//! An Envoy of a test's own, with one of the sample files of `envoy/`: other ports, maybe another plugin configuration, and an answer
//! of Envoy's own in the upstream's place.

use super::http_client::{self, Client, Response};
use super::{Process, free_port, until};
use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// What a log says where a VM has died.
const TRAPS: [&str; 8] = [
    "wasm trap",
    "Uncaught",
    "panicked",
    "wasm_fail",
    "invalid context_id",
    "already borrowed",
    "Maximum call stack",
    "Function: proxy_on",
];

/// An Envoy to be started.
#[derive(Clone)]
pub(crate) struct Setup {
    text: String,
    workers: u32,
    delivery: Option<Delivery>,
    environment: Vec<(&'static str, String)>,
}

/// What comes from a file of its own, as a control plane would deliver it.
#[derive(Clone, Copy)]
pub(crate) enum Delivery {
    /// The listener (LDS).
    Listener,
    /// The filter alone (ECDS), as from Istio.
    Filter,
}

pub(crate) struct Envoy {
    pub(crate) port: u16,
    admin: u16,
    log: PathBuf,
    /// The values of its environment.
    secrets: Vec<String>,
    process: Process,
}

impl Setup {
    /// A sample file of `envoy/`.
    pub(crate) fn sample(name: &str) -> Setup {
        let path = Path::new(ROOT).join("envoy").join(name);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let text = text
            .replace("route: {cluster: upstream}", "direct_response: {status: 200, body: {inline_string: ok}}")
            .replace("0.0.0.0", "127.0.0.1")
            .replace("/etc/weir/weir.wasm", &wasm());
        Setup { text, workers: 1, delivery: None, environment: Vec::new() }
    }

    /// Two clusters, `weir-redis` and the upstream's; with another plugin configuration, as a `StringValue`.
    pub(crate) fn redis(redis_port: u16, configuration: &str) -> Setup {
        Setup::sample("redis.yaml").with_redis(redis_port).with_text(configuration)
    }

    /// No Redis; with another plugin configuration.
    pub(crate) fn local(configuration: &str) -> Setup {
        Setup::sample("quickstart.yaml").with_text(configuration)
    }

    pub(crate) fn with_redis(self, port: u16) -> Setup {
        self.replace("port_value: 6379", &format!("port_value: {port}"))
    }

    pub(crate) fn with_webdis(self, port: u16) -> Setup {
        self.replace("port_value: 7379", &format!("port_value: {port}"))
    }

    /// With a server of Upstash's protocol on this port, without TLS.
    pub(crate) fn with_plain_upstash(self, port: u16) -> Setup {
        self.without("    transport_socket:\n", "    load_assignment:\n")
            .replace("    type: LOGICAL_DNS\n", "")
            .replace("address: example.upstash.io, port_value: 443", &format!("address: 127.0.0.1, port_value: {port}"))
    }

    pub(crate) fn with_workers(mut self, workers: u32) -> Setup {
        self.workers = workers;
        self
    }

    /// With a variable in its environment.
    pub(crate) fn with_variable(mut self, name: &'static str, value: &str) -> Setup {
        self.environment.push((name, value.to_owned()));
        self
    }

    /// That part can be changed while Envoy runs, by [`Envoy::deliver`].
    pub(crate) fn delivered(mut self, part: Delivery) -> Setup {
        self.delivery = Some(part);
        self
    }

    /// Another plugin configuration, as a `StringValue`.
    pub(crate) fn with_text(self, configuration: &str) -> Setup {
        let value = serde_json::to_string(configuration).unwrap();
        self.with_configuration("StringValue", &value)
    }

    /// Another plugin configuration: a message of `google.protobuf` and its value in YAML.
    pub(crate) fn with_configuration(mut self, message: &str, value: &str) -> Setup {
        let start = self.text.find("                configuration:\n").unwrap();
        let end = start + self.text[start..].find("          - name: envoy.filters.http.router").unwrap();
        let configuration = format!(
            "                configuration:\n                  \"@type\": type.googleapis.com/google.protobuf.{message}\n\
             \x20                 value: {value}\n"
        );
        self.text.replace_range(start..end, &configuration);
        self
    }

    /// With the upstream on this port, in the place of an answer of Envoy's own.
    pub(crate) fn with_upstream(self, port: u16) -> Setup {
        self.replace("direct_response: {status: 200, body: {inline_string: ok}}", "route: {cluster: upstream}")
            .replace("port_value: 8000", &format!("port_value: {port}"))
    }

    /// The filter once more behind itself, with this value of a `StringValue`.
    pub(crate) fn with_the_filter_again(mut self, value: &str) -> Setup {
        let start = self.text.find("          - name: weir\n").unwrap();
        let end = self.text.find("          - name: envoy.filters.http.router").unwrap();
        let again = Setup { text: self.text[start..].to_owned(), ..self.clone() }.with_configuration("StringValue", value);
        let length = again.text.find("          - name: envoy.filters.http.router").unwrap();
        self.text.insert_str(end, &again.text[..length]);
        self
    }

    /// With a cluster that has no server.
    pub(crate) fn without_endpoints(mut self, cluster: &str) -> Setup {
        let name = format!("      cluster_name: {cluster}\n");
        let start = self.text.find(&name).unwrap() + name.len();
        let length = self.text[start..].find('\n').unwrap();
        self.text.replace_range(start..start + length, "      endpoints: []");
        self
    }

    /// Other text in the sample's; it must be there.
    pub(crate) fn replace(mut self, from: &str, to: &str) -> Setup {
        assert!(self.text.contains(from), "the sample has no `{from}`");
        self.text = self.text.replace(from, to);
        self
    }

    /// Without the lines from one, the only one of its kind, to before the next of another.
    pub(crate) fn without(mut self, from: &str, to: &str) -> Setup {
        let start = self.text.find(from).unwrap();
        let end = start + self.text[start..].find(to).unwrap();
        self.text.replace_range(start..end, "");
        self
    }

    /// Starts it and waits until it is ready.
    pub(crate) fn start(self) -> Envoy {
        let mut envoy = self.launch();
        let (admin, log) = (envoy.admin, envoy.log.clone());
        until(
            Duration::from_secs(30),
            || {
                assert!(envoy.process.ended().is_none(), "Envoy has ended:\n{}", fs::read_to_string(&log).unwrap());
                std::net::TcpStream::connect(("127.0.0.1", admin)).ok()?;
                let answer = Client::connect(admin).get("/ready", &[]).ok()?; // it may end just now
                answer.body.starts_with("LIVE").then_some(())
            },
            || format!("Envoy gets ready:\n{}", fs::read_to_string(&log).unwrap()),
        );
        envoy
    }

    /// Starts it where it must not come up; its exit status and its log.
    pub(crate) fn refused(self) -> (ExitStatus, String) {
        let mut envoy = self.launch();
        let log = envoy.log.clone();
        let status = until(
            Duration::from_secs(30),
            || envoy.process.ended(),
            || format!("Envoy refuses to start:\n{}", fs::read_to_string(&log).unwrap()),
        );
        let text = fs::read_to_string(&log).unwrap();
        fs::remove_dir_all(log.parent().unwrap()).unwrap();
        std::mem::forget(envoy); // it has ended, and there is nobody to ask whether it is well
        (status, text)
    }

    fn launch(self) -> Envoy {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let (port, admin) = (free_port(), free_port());
        let text = on_ports(&self.text, port, admin);
        let name = format!("envoy-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&directory).unwrap();
        let (file, log) = (directory.join("envoy.yaml"), directory.join("envoy.log"));
        let bootstrap = match self.delivery {
            None => text,
            Some(part) => {
                let source = directory.join(DELIVERED);
                let (bootstrap, resource) = part.split(&text, &source);
                fs::write(&source, resource).unwrap();
                format!("node: {{id: test, cluster: test}}\n{bootstrap}")
            }
        };
        fs::write(&file, bootstrap).unwrap();
        let secrets = self.environment.iter().map(|(_, value)| value.clone()).collect();
        let output = File::create(&log).unwrap();
        let mut command = Command::new(program());
        command
            .arg("-c")
            .arg(&file)
            .args([
                "--use-dynamic-base-id",
                "--log-level",
                "warning",
                "--component-log-level",
                "wasm:info",
                "--file-flush-interval-msec",
                "20",
                // How long a listener that was replaced still serves its connections.
                "--drain-time-s",
                "3",
            ])
            .args(["--concurrency", &self.workers.to_string()])
            .envs(self.environment)
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output);
        // The kernel ends Envoy with the thread that started it, so it is a thread that lasts.
        let (give, take) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            give.send(Process::start(&mut command)).unwrap();
            loop {
                std::thread::park();
            }
        });
        Envoy { port, admin, log, secrets, process: take.recv().unwrap() }
    }
}

impl Envoy {
    /// A request with these headers, on a connection of its own.
    pub(crate) fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        http_client::get(self.port, path, headers)
    }

    /// Changes what is delivered to this setup's, and waits until a statistic of Envoy's says that it has been taken, or refused.
    pub(crate) fn deliver(&self, setup: &Setup, statistic: &str) {
        let directory = self.log.parent().unwrap();
        let text = on_ports(&setup.text, self.port, self.admin);
        let (_, resource) = setup.delivery.unwrap().split(&text, &directory.join(DELIVERED));
        let before = self.statistic(statistic);
        fs::write(directory.join("next.yaml"), resource).unwrap();
        fs::rename(directory.join("next.yaml"), directory.join(DELIVERED)).unwrap();
        until(
            Duration::from_secs(10),
            || (self.statistic(statistic) > before).then_some(()),
            || format!("{statistic}:\n{}", tail(&self.log())),
        );
    }

    /// One of Envoy's own counters or gauges; 0 where there is none.
    pub(crate) fn statistic(&self, name: &str) -> u64 {
        let text = http_client::get(self.admin, &format!("/stats?filter=^{name}$"), &[]).body;
        text.trim().rsplit_once(": ").map_or(0, |(_, value)| value.parse().unwrap())
    }

    /// The statuses of so many requests with this API key, one after the other.
    pub(crate) fn statuses(&self, key: &str, count: usize) -> Vec<u16> {
        let mut client = Client::connect(self.port);
        (0..count).map(|_| client.get("/", &[("x-api-key", key.as_bytes())]).unwrap().status).collect()
    }

    /// The filter's counters and gauges by their names without `wasmcustom.weir.`.
    pub(crate) fn metrics(&self) -> HashMap<String, u64> {
        let text = http_client::get(self.admin, "/stats?filter=^wasmcustom.weir", &[]).body;
        let lines = text.lines().filter_map(|line| line.strip_prefix("wasmcustom.weir.")?.split_once(": "));
        lines.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
    }

    /// One of them.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        *self.metrics().get(name).unwrap_or_else(|| panic!("no metric {name}: {:?}", self.metrics()))
    }

    /// Where Envoy's own interface is.
    pub(crate) fn admin_port(&self) -> u16 {
        self.admin
    }

    /// The lines that Envoy's statistics have for one, a histogram too.
    pub(crate) fn metric_text(&self, name: &str) -> String {
        http_client::get(self.admin, &format!("/stats?filter=^wasmcustom.weir.{name}"), &[]).body
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// The lines of the access log, once there are so many.
    pub(crate) fn accesses(&self, count: usize) -> Vec<String> {
        let lines = || -> Vec<String> {
            let log = self.log();
            let whole = log.rsplit_once('\n').map_or("", |(lines, _)| lines); // the last one may be under way
            whole.lines().filter(|line| line.contains(" verdict=")).map(str::to_owned).collect()
        };
        until(
            Duration::from_secs(10),
            || Some(lines()).filter(|lines| lines.len() >= count),
            || format!("{count} lines of the access log:\n{}", self.log()),
        )
    }

    /// Bytes of memory that the process takes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Envoy {
    /// However a test has treated it, no VM may have died, it must still answer, and its log has no secret.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", tail(&self.log()));
            return;
        }
        assert!(self.process.ended().is_none(), "Envoy has ended:\n{}", tail(&self.log()));
        let response = Client::connect(self.port).get("/", &[("x-api-key", b"the-last-one")]).unwrap();
        assert!([200, 429, 503].contains(&response.status), "{response:?}");
        let log = self.log();
        let trap = log.lines().find(|line| TRAPS.iter().any(|trap| line.contains(trap)));
        assert_eq!(trap, None, "a VM has died:\n{}", tail(&log));
        assert!(!self.secrets.iter().any(|secret| log.contains(secret)), "a secret is in the log:\n{log}");
        if let Some(directory) = self.log.parent() {
            fs::remove_dir_all(directory).unwrap();
        }
    }
}

/// The file of what is delivered.
const DELIVERED: &str = "delivered.yaml";

fn on_ports(text: &str, port: u16, admin: u16) -> String {
    text.replace("port_value: 10000", &format!("port_value: {port}"))
        .replace("port_value: 9901", &format!("port_value: {admin}"))
}

impl Delivery {
    /// A sample that gets this part from a file, and that file.
    fn split(self, text: &str, file: &Path) -> (String, String) {
        let source = format!("{{resource_api_version: V3, path_config_source: {{path: {}}}}}", file.display());
        match self {
            Delivery::Listener => {
                let (before, rest) = text.split_once("  listeners:\n  - ").unwrap();
                let (listener, after) = rest.split_once("\n  clusters:\n").unwrap();
                let listener = listener.replace("\n  ", "\n");
                let bootstrap = format!("dynamic_resources: {{lds_config: {source}}}\n{before}  clusters:\n{after}");
                let kind = "type.googleapis.com/envoy.config.listener.v3.Listener";
                (bootstrap, format!("resources:\n- \"@type\": {kind}\n  {listener}\n"))
            }
            Delivery::Filter => {
                let (before, rest) = text.split_once("          - name: weir\n            typed_config:\n").unwrap();
                let (filter, after) = rest.split_once("          - name: envoy.filters.http.router").unwrap();
                let filter: String =
                    filter.lines().map(|line| format!("    {}\n", line.get(14..).unwrap_or_default())).collect();
                let wasm = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";
                let discovered = format!("config_discovery: {{config_source: {source}, type_urls: [{wasm}]}}");
                let bootstrap = format!(
                    "{before}          - name: weir\n            {discovered}\n          - name: envoy.filters.http.router{after}"
                );
                let kind = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig";
                (bootstrap, format!("resources:\n- \"@type\": {kind}\n  name: weir\n  typed_config:\n{filter}"))
            }
        }
    }
}

/// The last lines of a log, of which only the very last may be of the access log.
fn tail(log: &str) -> String {
    let (accesses, mut lines): (Vec<&str>, Vec<&str>) = log.lines().partition(|line| line.contains(" verdict="));
    lines.drain(..lines.len().saturating_sub(30));
    lines.extend(accesses.last());
    lines.join("\n")
}

fn program() -> PathBuf {
    let path = Path::new(ROOT).join(".tools/bin/envoy");
    assert!(path.exists(), "there is no {}; `make setup` installs it", path.display());
    path
}

/// Where weir.wasm is.
pub(crate) fn wasm() -> String {
    let path = Path::new(ROOT).join("target/wasm32-unknown-unknown/release/weir.wasm");
    assert!(path.exists(), "there is no {}; `make wasm` builds it", path.display());
    path.display().to_string()
}
