"""Measures Weir beside Envoy without a filter and beside a wasm filter that does nothing: the same upstream, the same load, in turns,
in one run, and an Envoy of its own for each measurement, because two processes of the same program aren't equally fast. What
counts are the ratios; the machine's mood is in the spread.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "envoy"))
import run as demo  # noqa: E402

NOOP = ROOT / "target/wasm32-unknown-unknown/release/noop.wasm"
REFERENCE = "a wasm filter that does nothing"
ROUTER = "          - name: envoy.filters.http.router"

# What goes through: the path, the headers beside the key's, and the size of the answer.
Traffic = collections.namedtuple("Traffic", "path headers answer")
TRAFFIC = {
    "api": Traffic(
        "/v1/orders?limit=50",
        [
            "accept: application/json, text/plain, */*",
            "accept-encoding: gzip, deflate, br",
            "accept-language: en-GB,en;q=0.9,de;q=0.8",
            "cookie: session=8f14e45fceea167a5a36dedd4bea2543; theme=dark",
            "origin: https://app.example.com",
            "referer: https://app.example.com/orders",
            "sec-fetch-mode: cors",
            "sec-fetch-site: same-site",
            "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "user-agent: Mozilla/5.0 (X11; Linux x86_64; rv:133.0) Gecko/20100101 Firefox/133.0",
        ],
        2048,
    ),
    "smallest": Traffic("/", [], 2),
}


def between(text, start, end, instead):
    """The text with something else between two marks."""
    before, rest = text.split(start, 1)
    return before + instead + end + rest.split(end, 1)[1]


def limiter(sample, ports):
    """A sample with a limit that is never reached."""
    return demo.sample(sample, ports).replace("limits: [60/min burst 5]", "limits: [1000000000/s]")


def cases(what, ports):
    local = limiter("quickstart.yaml", ports)
    nothing = {REFERENCE: local.replace(str(demo.WASM), str(NOOP))}
    if what == "transports":
        return nothing | {
            "`redis`": limiter("redis.yaml", ports),
            "`redis` through an internal listener": limiter("redis-listener.yaml", ports),
            "`redis-call`": limiter("redis-call.yaml", ports),
            "`webdis`": limiter("webdis.yaml", ports),
        }
    return {
        "no filter": between(local, "          - name: weir\n", ROUTER, ""),
        **nothing,
        "weir, local": local,
        "weir, Redis": limiter("redis.yaml", ports),
    }


def start_webdis(children, directory, redis):
    """A Webdis before that Redis, as it comes but for its ports; its own port."""
    port = demo.free_port()
    settings = {"redis_host": "127.0.0.1", "redis_port": redis, "http_host": "127.0.0.1", "http_port": port}
    usual = {"threads": 5, "pool_size": 20, "daemonize": False, "websockets": False, "database": 0, "verbosity": 0}
    acl = {"acl": [{"disabled": ["DEBUG"]}], "logfile": "/dev/null"}
    (directory / "webdis.json").write_text(json.dumps(settings | usual | acl))
    demo.start(children, ["webdis", str(directory / "webdis.json")], subprocess.DEVNULL)
    demo.until(10, lambda: demo.answers(port, b"GET /PING HTTP/1.1\r\nhost: x\r\n\r\n", b"200 OK"), lambda: "Webdis doesn't answer")
    return port


def start_upstream(children, directory, traffic):
    """An nginx that answers from memory; its port."""
    port = demo.free_port()
    temporary = " ".join(f"{kind}_temp_path {directory};" for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
    (directory / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {directory}/nginx.pid; error_log stderr error; events {{}}\n"
        f"http {{ access_log off; keepalive_requests 1000000000; {temporary}\n"
        f"server {{ listen 127.0.0.1:{port}; default_type application/json;\n"
        f"location / {{ return 200 '{'x' * traffic.answer}'; }} }} }}\n"
    )
    demo.start(children, ["nginx", "-c", str(directory / "nginx.conf")], subprocess.DEVNULL)
    demo.until(10, lambda: demo.answers(port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"200 OK"), lambda: "nginx doesn't answer")
    return port


@contextlib.contextmanager
def envoy(children, directory, text):
    """An Envoy with one worker on ports of its own, as long as the block lasts; its port, its admin port and its process."""
    port, admin = demo.free_port(), demo.free_port()
    file, log = directory / "envoy.yaml", directory / "envoy.log"
    file.write_text(text.replace("port_value: 10000", f"port_value: {port}").replace("port_value: 9901", f"port_value: {admin}"))
    # The access log is written as it is shipped, and to nowhere.
    options = ["--use-dynamic-base-id", "--log-level", "error", "--log-path", str(log), "--concurrency", "1"]
    process = demo.start(children, [str(demo.ENVOY), "-c", str(file), *options], subprocess.DEVNULL)
    demo.until(
        30,
        lambda: demo.answers(admin, b"GET /ready HTTP/1.1\r\nhost: admin\r\n\r\n", b"200 OK"),
        lambda: f"Envoy doesn't get ready:\n{log.read_text()}",
    )
    yield port, admin, process.pid
    process.terminate()
    process.wait()


def cpu_seconds(pid):
    """The CPU time that a process has taken."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# Requests per second, median and 99th percentile of the latency, and Envoy's CPU time per request: both in microseconds.
Run = collections.namedtuple("Run", "rate median tail cpu")


def load(port, pid, traffic, connections, seconds):
    headers = [argument for header in ["x-api-key: bench", *traffic.headers] for argument in ("-H", header)]
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", *headers, f"http://127.0.0.1:{port}{traffic.path}"]
    before = cpu_seconds(pid)
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    cpu = cpu_seconds(pid) - before
    if "Non-2xx" in text or "Socket errors" in text:
        raise demo.Failed(f"not every request was let in:\n{text}")

    def microseconds(percentile):
        number, unit = re.search(rf"{percentile}%\s+([\d.]+)(us|ms|s)", text).groups()
        return float(number) * {"us": 1, "ms": 1000, "s": 1_000_000}[unit]

    requests = int(re.search(r"(\d+) requests in", text).group(1))
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", text).group(1))
    return Run(rate, microseconds(50), microseconds(99), cpu / requests * 1_000_000)


def decided_otherwise(admin):
    """How many requests Redis should have decided and hasn't."""
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/stats?filter=^wasmcustom.weir.store.failures$") as answer:
        return int(answer.read().decode().partition(": ")[2] or 0)


def row(name, runs, reference):
    """A line of the table."""
    # Each round's ratio is taken within the round: what disturbs one run disturbs its neighbours.
    ratios = [run.rate / other.rate for run, other in zip(runs, reference)]
    rate, median, tail, cpu = (statistics.median(column) for column in zip(*runs))
    spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
    return f"| {name} | {rate:,.0f} | {spread} | {cpu:,.0f} | {median:,.0f} | {tail:,.0f} |"


def measure(arguments, children, directory):
    traffic = TRAFFIC[arguments.traffic]
    redis = demo.free_port()
    demo.start_redis(children, redis)
    upstream = start_upstream(children, directory, traffic)
    ports = {8000: upstream, 6379: redis}
    if arguments.cases == "transports":
        ports[7379] = start_webdis(children, directory, redis)
    texts = cases(arguments.cases, ports)
    runs = {name: [] for name in texts}
    for turn in range(arguments.rounds):
        print(f"round {turn + 1} of {arguments.rounds}", file=sys.stderr)
        for name, text in texts.items():
            with envoy(children, directory, text) as (port, admin, pid):
                load(port, pid, traffic, arguments.connections, 1)  # warm
                runs[name].append(load(port, pid, traffic, arguments.connections, arguments.seconds))
                if failures := decided_otherwise(admin):
                    print(f"{name}: {failures} requests weren't decided by Redis", file=sys.stderr)
    print(
        f"{arguments.traffic} requests ({len(traffic.headers) + 2} headers, {traffic.answer} bytes answered), "
        f"{arguments.connections} connections, one worker, {arguments.rounds} rounds of {arguments.seconds} s in turns; medians\n"
    )
    print(f"| | requests/s | ratio to {REFERENCE} (spread) | Envoy's CPU, µs a request | median µs | 99 % µs |")
    print("|---|---|---|---|---|---|")
    for name in texts:
        print(row(name, runs[name], runs[REFERENCE]))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", choices=["filters", "transports"], default="filters")
    parser.add_argument("--traffic", choices=TRAFFIC, default="api")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--connections", type=int, default=32)
    arguments = parser.parse_args()
    with demo.children() as children, tempfile.TemporaryDirectory(prefix="weir-") as directory:
        measure(arguments, children, pathlib.Path(directory))


if __name__ == "__main__":
    main()
