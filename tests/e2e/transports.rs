//! Redis wherever it is: each file of `envoy/` with the real thing behind it.

use crate::beside_others;
use crate::samples::BURST;
use crate::servers::envoy_server::{Envoy, Setup};
use crate::servers::redis_cluster::Cluster;
use crate::servers::redis_server::Redis;
use crate::servers::webdis::{USER, Webdis};
use crate::servers::{free_port, until, upstash};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// That Redis decides: a burst, and bytes of any kind in keys.
fn assert_redis_decides(envoy: &Envoy, what: &str) {
    assert_eq!(envoy.statuses("a", 7), BURST, "{what}\n{}", envoy.log());
    assert!(envoy.accesses(1)[0].ends_with("subject=a source=redis"), "{what}: {}\n{:?}", envoy.log(), envoy.metrics());
    assert_eq!(envoy.statuses("a/b.c:{d}%\" é", 7), BURST, "{what}");
    assert_eq!(envoy.metric("store.failures"), 0, "{what}: {}", envoy.log());
}

/// The keys that it has written.
fn keys(redis: &Redis) -> Vec<String> {
    let mut keys: Vec<String> = redis::from_redis_value(redis.run(&["KEYS", "*"])).unwrap();
    keys.sort();
    keys
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{}-{name}", std::process::id(), free_port()))
}

fn webdis(port: u16) -> Setup {
    webdis_with(port, &format!("{{value: \"{USER}\"}}"))
}

fn webdis_with(port: u16, auth: &str) -> Setup {
    Setup::sample("webdis.yaml")
        .with_webdis(port)
        .replace("transport: webdis", &format!("transport: webdis\n                      auth: {auth}"))
}

fn upstash(port: u16, token: &str) -> Setup {
    Setup::sample("upstash.yaml").with_plain_upstash(port).with_variable("UPSTASH_TOKEN", token)
}

#[test]
fn by_callouts_redis_decides_and_the_keys_are_the_same() {
    let _machine = beside_others();
    let redis = Redis::start();
    let envoy = Setup::sample("redis.yaml").with_redis(redis.port).start();
    assert_redis_decides(&envoy, "redis");
    let wanted = keys(&redis);
    assert_eq!(wanted.len(), 2, "{wanted:?}");
    let server = Webdis::start(redis.port);
    let setups = [
        ("redis-call", Setup::sample("redis-call.yaml").with_redis(redis.port)),
        ("webdis", webdis(server.port)),
        ("upstash", upstash(upstash::serve(redis.port), upstash::TOKEN)),
    ];
    for (what, setup) in setups {
        redis.run(&["FLUSHALL"]);
        redis.run(&["SCRIPT", "FLUSH"]);
        let envoy = setup.start();
        assert_redis_decides(&envoy, what);
        assert_eq!(keys(&redis), wanted, "{what}");
        assert_eq!(envoy.metric("store.noscript"), 1, "{what}");
    }
}

#[test]
fn upstash_own_client_and_weir_are_told_the_same_by_one_server() {
    let _machine = beside_others();
    let redis = Redis::start();
    let port = upstash::serve(redis.port);
    let envoy = upstash(port, upstash::TOKEN).start();
    let remaining = |envoy: &Envoy| envoy.get("/", &[("x-api-key", "a")]).number("ratelimit-remaining");
    assert_eq!(remaining(&envoy), Some(4));
    let keys = keys(&redis);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("node")
        .arg(root.join("tests/servers/upstash_client.mjs"))
        .arg(root.join(".tools/upstash"))
        .args([&format!("http://127.0.0.1:{port}"), upstash::TOKEN, &keys[0], weir_core::store::script::SOURCE])
        .output()
        .unwrap_or_else(|error| panic!("node: {error}; `make setup` installs it"));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    assert!(told["unknown"].as_str().unwrap().contains("NOSCRIPT"), "{told}");
    assert!(told["stranger"].as_str().unwrap().contains("WRONGPASS"), "{told}");
    let left = |reply: &serde_json::Value| (reply[0].as_u64(), reply[1].as_u64());
    assert_eq!(left(&told["one"]), (Some(1), Some(3)), "{told}");
    assert_eq!(
        told["several"].as_array().unwrap().iter().map(left).collect::<Vec<_>>(),
        [(Some(1), Some(2)), (Some(1), Some(1))]
    );
    assert_eq!(
        (&told["ok"], &told["same"], &told["nobody"]),
        (&"OK".into(), &true.into(), &serde_json::Value::Null),
        "{told}"
    );
    assert_eq!(remaining(&envoy), Some(0));
}

/// A sample of the transport `redis` as one of `redis-call`.
fn as_callouts(setup: Setup) -> Setup {
    setup
        .replace(
            "                      cluster: weir-redis\n",
            "                      transport: redis-call\n                      cluster: weir-redis\n",
        )
        .without("    typed_extension_protocol_options:\n", "    load_assignment:\n      cluster_name: weir-redis")
}

#[test]
fn a_password_and_an_acl_user_open_redis_and_a_wrong_one_is_told_at_once() {
    let _machine = beside_others();
    let acl = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("envoy/redis-auth.yaml")).unwrap();
    let acl = acl.lines().find_map(|line| line.strip_prefix("#   ACL SETUSER ")).unwrap().replace("PASSWORD", "se:cret");
    let user: Vec<&str> = std::iter::once("--user").chain(acl.split(' ')).collect();
    let redis = Redis::guarded("hunter2", &user);
    let sample = |secret| {
        let setup = Setup::sample("redis-auth.yaml").with_redis(redis.port).with_variable("REDIS_AUTH", secret);
        setup.replace("timeout: 50ms", "timeout: 5s")
    };
    for secret in ["hunter2", "weir:se:cret"] {
        for setup in [sample(secret), as_callouts(sample(secret))] {
            let envoy = setup.start();
            assert_redis_decides(&envoy, secret);
            redis.run(&["FLUSHALL"]);
        }
    }
    for setup in [sample("not-the-one"), as_callouts(sample("not-the-one"))] {
        let envoy = setup.start();
        let start = Instant::now();
        assert_eq!(envoy.statuses("a", 7), BURST);
        assert!(start.elapsed() < Duration::from_secs(2), "not one timeout: {:?}", start.elapsed());
        assert!(envoy.accesses(1)[0].ends_with("source=local"));
        let told = || envoy.log().contains("WRONGPASS").then_some(());
        until(Duration::from_secs(5), told, || format!("the log says why:\n{}", envoy.log()));
    }
    let webdis = Webdis::start(redis.port);
    let strangers = [
        webdis_with(webdis.port, "{env: SECRET}")
            .replace("vm_id: weir\n", "vm_id: weir\n                  environment_variables: {host_env_keys: [SECRET]}\n")
            .with_variable("SECRET", "weir:not-the-one"),
        upstash(upstash::serve(redis.port), "not-the-one"),
    ];
    for setup in strangers {
        let envoy = setup.start();
        assert_eq!(envoy.statuses("a", 7), BURST);
        assert!(envoy.accesses(1)[0].ends_with("source=local"));
        let told = || envoy.log().contains("Redis can't be asked").then_some(());
        until(Duration::from_secs(5), told, || format!("the log says it:\n{}", envoy.log()));
    }
    let (status, log) = Setup::sample("redis-auth.yaml").with_redis(redis.port).refused();
    assert!(!status.success() && log.contains("store.auth.env: REDIS_AUTH isn't set"), "{log}");
}

/// Runs openssl in a directory.
fn openssl(directory: &Path, arguments: &str) {
    let output = Command::new("openssl").current_dir(directory).args(arguments.split(' ')).output();
    let output = output.unwrap_or_else(|error| panic!("openssl: {error}; `make setup` installs it"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn over_tls_redis_decides_and_another_certificate_is_refused() {
    let _machine = beside_others();
    let directory = file("tls");
    std::fs::create_dir_all(&directory).unwrap();
    let new = "req -x509 -newkey rsa:2048 -nodes -days 2";
    openssl(
        &directory,
        &format!("{new} -keyout key.pem -out cert.pem -subj /CN=r -addext subjectAltName=DNS:redis.example.com"),
    );
    openssl(&directory, &format!("{new} -keyout other-key.pem -out other.pem -subj /CN=o"));
    let path = |name: &str| directory.join(name).display().to_string();
    let port = free_port().to_string();
    let (cert, key) = (path("cert.pem"), path("key.pem"));
    let redis = Redis::start_with(&[
        "--tls-port",
        &port,
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &key,
        "--tls-auth-clients",
        "no",
    ]);
    let sample = |ca: &str| {
        let setup = Setup::sample("redis-tls.yaml").replace("port_value: 6379", &format!("port_value: {port}"));
        setup.replace("/etc/weir/ca.crt", &path(ca)).replace("timeout: 50ms", "timeout: 500ms")
    };
    for setup in [sample("cert.pem"), as_callouts(sample("cert.pem"))] {
        redis.run(&["FLUSHALL"]);
        assert_redis_decides(&setup.start(), "TLS");
    }
    let envoy = sample("other.pem").start();
    assert_eq!(envoy.statuses("a", 7), BURST);
    assert!(envoy.accesses(1)[0].ends_with("source=local"));
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn through_a_unix_socket_redis_decides() {
    let _machine = beside_others();
    let socket = std::env::temp_dir().join(format!("weir-{}.sock", std::process::id())).display().to_string();
    let redis = Redis::start_with(&["--unixsocket", &socket]);
    let sample = || Setup::sample("redis-unix.yaml").replace("/run/redis/redis.sock", &socket);
    for setup in [sample(), as_callouts(sample())] {
        redis.run(&["FLUSHALL"]);
        assert_redis_decides(&setup.start(), "a Unix socket");
    }
}

#[test]
fn valkey_decides_as_redis_does() {
    let _machine = beside_others();
    let valkey = Redis::valkey();
    assert_redis_decides(&Setup::sample("redis.yaml").with_redis(valkey.port).start(), "Valkey");
}

#[test]
fn a_cluster_decides() {
    let _machine = beside_others();
    let cluster = Cluster::start();
    let sample = Setup::sample("redis-cluster.yaml").with_redis(cluster.port());
    let envoy = sample.replace("timeout: 50ms", "timeout: 500ms").start();
    for key in 0..12 {
        assert_eq!(envoy.statuses(&format!("k{key}"), 7), BURST);
    }
    assert!(cluster.sizes().iter().all(|keys| *keys > 0), "keys on each node: {:?}", cluster.sizes());
    assert_eq!(envoy.metric("store.failures"), 0, "{}", envoy.log());
}
