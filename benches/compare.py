"""Measures Weir beside Envoy without a filter, a wasm filter that does nothing and Envoy's own local limiter: the same upstream, the
same load, in turns, in one run, and an Envoy of its own for each turn, because two processes of the same program aren't equally
fast. What counts are the ratios; the machine's mood is in the spread.
"""

import argparse
import collections
import contextlib
import datetime
import itertools
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
SERVICE = ROOT / "target/release/service"
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


# What is measured, with which sample, whether every request is let in, and whether each has a key of its own.
Case = collections.namedtuple("Case", "text allowed distinct", defaults=[False])

DISTINCT = ROOT / "benches/distinct.lua"

NATIVE = """          - name: envoy.filters.http.local_ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
              stat_prefix: native
              token_bucket: {max_tokens: 1000000000, tokens_per_fill: 1000000000, fill_interval: 1s}
              filter_enabled: {default_value: {numerator: 100, denominator: HUNDRED}}
              filter_enforced: {default_value: {numerator: 100, denominator: HUNDRED}}
"""

# What Envoy has for limits that Envoys share: it asks a service about each request, and the service asks Redis.
REMOTE = """          - name: envoy.filters.http.ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: bench
              timeout: 2s
              failure_mode_deny: true
              rate_limit_service: {transport_api_version: V3, grpc_service: {envoy_grpc: {cluster_name: service}}}
"""
REMOTE_ACTIONS = """            - name: all
              rate_limits: [{actions: [{request_headers: {header_name: x-api-key, descriptor_key: key}}]}]
"""
REMOTE_CLUSTER = """  clusters:
  - name: service
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment:
      cluster_name: service
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: PORT}}}}]}]
"""


def between(text, start, end, instead):
    """The text with something else between two marks."""
    before, rest = text.split(start, 1)
    return before + instead + end + rest.split(end, 1)[1]


def limiter(sample, ports, limit="1000000000/s"):
    text = demo.sample(sample, ports).replace("limits: [60/min burst 5]", f"limits: [{limit}]")
    # Where 256 connections share two cores with everything else, a wait isn't Redis's fault.
    return text.replace("timeout: 50ms", "timeout: 2s")


def cases(ports):
    local = limiter("quickstart.yaml", ports)
    # One Redis in the Cluster's place.
    proxied = between(limiter("redis-cluster.yaml", ports), "    lb_policy: CLUSTER_PROVIDED\n", "    load_assignment:", "")
    remote = between(local, "          - name: weir\n", ROUTER, REMOTE).replace("            - name: all\n", REMOTE_ACTIONS)
    remote = remote.replace("  clusters:\n", REMOTE_CLUSTER.replace("PORT", str(ports["service"])))
    eight = ", ".join(f"1000000000/{window}" for window in ["s", "2s", "5s", "10s", "min", "10min", "h", "d"])
    other = "                    - {name: RULE, match: {path: {prefix: /RULE}}, key: [ip], limits: [1/s]}\n"
    thousand = "".join(other.replace("RULE", f"rule-{place}") for place in range(999))
    redis = limiter("redis.yaml", ports)
    return {
        "no filter": Case(between(local, "          - name: weir\n", ROUTER, ""), True),
        REFERENCE: Case(local.replace(str(demo.WASM), str(NOOP)), True),
        "Envoy's own `local_ratelimit`": Case(between(local, "          - name: weir\n", ROUTER, NATIVE), True),
        "Envoy's own `ratelimit`, with the least service": Case(remote, True),
        "weir, local": Case(local, True),
        "weir, denied by Redis": Case(limiter("redis.yaml", ports, "1/d"), False),
        "weir, `redis`": Case(redis, True),
        "weir, `redis`, a key for each request": Case(redis, True, True),
        "weir, `redis`, 8 limits": Case(limiter("redis.yaml", ports, eight), True),
        "weir, `redis`, 999 rules more": Case(redis.replace("                    rules:\n", f"                    rules:\n{thousand}"), True),
        "weir, leased": Case(redis.replace("/s]\n", "/s]\n                      lease: {max: 1000}\n"), True),
        "weir, `redis` through an internal listener": Case(limiter("redis-listener.yaml", ports), True),
        "weir, `redis` through Envoy's redis_proxy": Case(proxied, True),
        "weir, `redis-call`": Case(limiter("redis-call.yaml", ports), True),
        "weir, `webdis`": Case(limiter("webdis.yaml", ports), True),
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


def start_service(children, redis):
    """The least rate limit service, before that Redis; its port."""
    port = demo.free_port()
    demo.start(children, [str(SERVICE), str(port), f"redis://127.0.0.1:{redis}"], subprocess.DEVNULL)
    return port


def on_ports(text, port, admin):
    return text.replace("port_value: 10000", f"port_value: {port}").replace("port_value: 9901", f"port_value: {admin}")


@contextlib.contextmanager
def envoy(children, directory, text, workers):
    """An Envoy on ports of its own, as long as the block lasts; its port, its admin port and its process."""
    port, admin = demo.free_port(), demo.free_port()
    file, log = directory / "envoy.yaml", directory / "envoy.log"
    file.write_text(on_ports(text, port, admin))
    # The access log is written as it is shipped, and to nowhere.
    options = ["--use-dynamic-base-id", "--log-level", "error", "--log-path", str(log), "--concurrency", str(workers)]
    process = demo.start(children, [str(demo.ENVOY), "-c", str(file), *options], subprocess.DEVNULL)
    demo.until(
        30,
        lambda: demo.answers(admin, b"GET /ready HTTP/1.1\r\nhost: admin\r\n\r\n", b"200 OK"),
        lambda: f"Envoy doesn't get ready:\n{log.read_text()}",
    )
    yield port, admin, process.pid
    process.terminate()
    process.wait()


def start_ms(children, directory, text):
    """Milliseconds from Envoy's first line in its log to that its workers start."""
    log = directory / "start.log"
    log.unlink(missing_ok=True)
    file = directory / "start.yaml"
    file.write_text(on_ports(text, demo.free_port(), demo.free_port()))
    options = ["--use-dynamic-base-id", "--log-path", str(log), "--log-format", "%E.%F %v", "--file-flush-interval-msec", "20"]
    process = demo.start(children, [str(demo.ENVOY), "-c", str(file), *options, "--concurrency", "1"], subprocess.DEVNULL)
    lines = lambda: log.read_text().splitlines() if log.exists() else []  # noqa: E731
    started = lambda: [line for line in lines() if "starting workers" in line]  # noqa: E731
    last = demo.until(30, started, lambda: "Envoy doesn't start")[0]
    process.terminate()
    process.wait()
    seconds = lambda line: float(line.split(" ")[0])  # noqa: E731
    return (seconds(last) - seconds(lines()[0])) * 1000


def cpu_seconds(pid):
    """The CPU time that a process has taken."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def redis_calls(port):
    """How many scripts a Redis has run so far."""
    text = subprocess.run(["redis-cli", "-p", str(port), "info", "commandstats"], capture_output=True, text=True, check=True).stdout
    return sum(int(calls) for calls in re.findall(r"cmdstat_eval\w*:calls=(\d+)", text))


# Requests per second, median and 99th percentile of the latency in microseconds, Envoy's CPU time for a request in microseconds, and
# scripts run by Redis for a request.
Run = collections.namedtuple("Run", "rate median tail cpu calls")


def load(port, pid, redis, case, traffic, connections, seconds):
    headers = [argument for header in ["x-api-key: bench", *traffic.headers] for argument in ("-H", header)]
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", *headers, f"http://127.0.0.1:{port}{traffic.path}"]
    if case.distinct:
        command += ["-s", str(DISTINCT)]
    before, calls = cpu_seconds(pid), redis_calls(redis)
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    cpu, calls = cpu_seconds(pid) - before, redis_calls(redis) - calls
    if case.allowed is not None and (case.allowed == ("Non-2xx" in text) or "Socket errors" in text):
        raise demo.Failed(f"not every request was let in, or every one was:\n{text}")

    def microseconds(percentile):
        number, unit = re.search(rf"{percentile}%\s+([\d.]+)(us|ms|s)", text).groups()
        return float(number) * {"us": 1, "ms": 1000, "s": 1_000_000}[unit]

    requests = int(re.search(r"(\d+) requests in", text).group(1))
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", text).group(1))
    return Run(rate, microseconds(50), microseconds(99), cpu / requests * 1_000_000, calls / requests)


def resident_mib(pid):
    """What a process has in memory."""
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def grown_mib(children, directory, case, redis, traffic):
    """How many MiB an Envoy of one worker takes more after a million clients than after ten thousand, and after the second half of them."""
    with envoy(children, directory, case.text, 1) as (port, _, pid):
        def meet(clients):
            met = 0
            while met < clients:
                seconds = 1 if clients < 100_000 else 5
                run = load(port, pid, redis, case, traffic, 32, seconds)
                met += run.rate * seconds
            return resident_mib(pid)

        few, half, all_of_them = meet(10_000), meet(490_000), meet(500_000)
    return all_of_them - few, all_of_them - half


def round_trip(redis):
    """The median of a script's way to Redis and back on one connection without Envoy, in microseconds."""
    command = ["redis-benchmark", "-p", str(redis), "-c", "1", "-n", "20000", "--csv", "EVAL", "return 1", "0"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    # "test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms",…
    return float(text.strip().splitlines()[-1].split(",")[4].strip('"')) * 1000


def decided_otherwise(admin):
    """How many requests Redis should have decided and hasn't."""
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/stats?filter=^wasmcustom.weir.store.failures$") as answer:
        return int(answer.read().decode().partition(": ")[2] or 0)


# A case's medians, its ratios to the reference, each taken within its round because what disturbs one run disturbs its neighbours, and the
# least CPU time of a round, which is the least disturbed.
Summary = collections.namedtuple("Summary", "run ratios least_cpu")


def summary(runs, reference):
    return Summary(
        Run(*(statistics.median(column) for column in zip(*runs))),
        sorted(run.rate / other.rate for run, other in zip(runs, reference)),
        min(run.cpu for run in runs),
    )


def row(name, summary):
    """A line of the table."""
    rate, median, tail, cpu, calls = summary.run
    spread = f"{statistics.median(summary.ratios):.2f} ({summary.ratios[0]:.2f}–{summary.ratios[-1]:.2f})"
    return f"| {name} | {rate:,.0f} | {spread} | {cpu:,.0f} ({summary.least_cpu:,.0f}) | {median:,.0f} | {tail:,.0f} | {calls:.4f} |"


def panel(title, summaries, x, y, width):
    """Bars of the ratios, with their spread."""
    out = [f'<text x="{x}" y="{y}" font-weight="bold">{title}</text>']
    left, most = x + 310, 1.5
    scale = (width - 370) / most
    for place, (name, summary) in enumerate(summaries.items()):
        top = y + 12 + place * 20
        ratio, low, high = statistics.median(summary.ratios), summary.ratios[0], summary.ratios[-1]
        colour = "#2f7d4f" if name.startswith("weir") else "#6b7280"
        out += [
            f'<text x="{left - 8}" y="{top + 11}" text-anchor="end" fill="#333">{name.replace("`", "")}</text>',
            f'<rect x="{left}" y="{top}" width="{min(ratio, most) * scale:.0f}" height="14" fill="{colour}"/>',
            f'<line x1="{left + min(low, most) * scale:.0f}" x2="{left + min(high, most) * scale:.0f}" y1="{top + 7}" y2="{top + 7}"'
            ' stroke="#d08a1d" stroke-width="2"/>',
            f'<text x="{left + most * scale + 10:.0f}" y="{top + 11}" fill="#333">{ratio:.2f}</text>',
        ]
    bottom = y + 12 + len(summaries) * 20
    out.append(f'<line x1="{left + scale:.0f}" x2="{left + scale:.0f}" y1="{y + 8}" y2="{bottom}" stroke="#999" stroke-dasharray="3"/>')
    return out


def draw(tables):
    width, height = 740, 60 + 20 * max(len(summaries) for summaries in tables.values())
    rows = len(tables)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{rows * height + 40}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="20" y="24" fill="#333">Throughput, as a ratio to {REFERENCE}; the thin line is the spread over the rounds</text>',
    ]
    for place, ((workers, connections), summaries) in enumerate(tables.items()):
        out += panel(conditions(workers, connections), summaries, 20, 56 + place * height, width - 20)
    return "\n".join([*out, "</svg>", ""])


def conditions(workers, connections):
    return f"{workers} worker{'s' * (workers > 1)}, {connections} connection{'s' * (connections > 1)}"


def measure(arguments, children, directory):
    traffic = TRAFFIC[arguments.traffic]
    redis = demo.free_port()
    demo.start_redis(children, redis)
    ports = {8000: start_upstream(children, directory, traffic), 6379: redis}
    ports[7379] = start_webdis(children, directory, redis)
    ports["service"] = start_service(children, redis)
    everything = cases(ports)
    measured = {name: case for name, case in everything.items() if re.search(arguments.only, name) or name == REFERENCE}
    runs, trips, starts = collections.defaultdict(list), [], collections.defaultdict(list)
    for turn, workers in itertools.product(range(arguments.rounds), arguments.workers):
        print(f"round {turn + 1} of {arguments.rounds}, {conditions(workers, 0)[:-14]}", file=sys.stderr)
        trips.append(round_trip(redis))
        for name in ["no filter", REFERENCE, "weir, local"]:
            starts[name].append(start_ms(children, directory, everything[name].text))
        for name, case in measured.items():
            with envoy(children, directory, case.text, workers) as (port, admin, pid):
                load(port, pid, redis, case._replace(allowed=None), traffic, 32, 1)  # warm
                for connections in arguments.connections:
                    run = load(port, pid, redis, case, traffic, connections, arguments.seconds)
                    runs[workers, connections, name].append(run)
                if failures := decided_otherwise(admin):
                    print(f"{name}: {failures} requests weren't decided by Redis", file=sys.stderr)
    combinations = itertools.product(arguments.workers, arguments.connections)
    grown = None
    if arguments.memory:
        print("a million clients", file=sys.stderr)
        grown = grown_mib(children, directory, everything["weir, `redis`, a key for each request"], redis, traffic)
    once = statistics.median(trips), {name: statistics.median(times) for name, times in starts.items()}, grown
    return *once, {
        (workers, connections): {
            name: summary(runs[workers, connections, name], runs[workers, connections, REFERENCE]) for name in measured
        }
        for workers, connections in combinations
    }


def report(arguments, trip, starts, grown, tables):
    traffic = TRAFFIC[arguments.traffic]
    out = [
        "# What Weir costs\n",
        f"`make bench`, {datetime.date.today()}, Envoy 1.40, {os.cpu_count()} cores that load, upstream, Redis and Envoy share: "
        f"{arguments.traffic} requests ({len(traffic.headers) + 2} headers, {traffic.answer} bytes answered), "
        f"{arguments.rounds} rounds of {arguments.seconds} s in turns; medians, and the least and greatest ratio of a round. "
        "No request reached its limit but in the row that says so.\n",
        "Until its workers start Envoy takes: " + ", ".join(f"{name} {ms:.0f} ms" for name, ms in starts.items()) + ".\n",
        *([f"Envoy takes {grown[0]:.1f} MiB more after 1,000,000 clients than after 10,000, of which {grown[1]:.1f} MiB for the second half.\n"] if grown else []),
        "![throughput as a ratio, by workers and connections](results.svg)\n",
    ]
    for (workers, connections), summaries in tables.items():
        out += [
            f"## {conditions(workers, connections)}\n",
            f"| | requests/s | ratio to {REFERENCE} (spread) | Envoy's CPU, µs a request (least) | median µs | 99 % µs | scripts in Redis a request |",
            "|---|---|---|---|---|---|---|",
            *(row(name, summary) for name, summary in summaries.items()),
            "",
        ]
        if connections == 1 and "weir, `redis`" in summaries:
            added = summaries["weir, `redis`"].run.median - summaries[REFERENCE].run.median
            out.append(f"`EVAL \"return 1\"` on one connection without Envoy: {trip:.0f} µs. A decision by `redis` adds {added:.0f} µs.\n")
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose names have this regular expression, and the reference")
    parser.add_argument("--traffic", choices=TRAFFIC, default="api")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 32, 256])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--memory", action="store_true", help="what a million clients take in memory too, a minute or two")
    parser.add_argument("--write", type=pathlib.Path, help="the directory for RESULTS.md and results.svg")
    arguments = parser.parse_args()
    with demo.children() as children, tempfile.TemporaryDirectory(prefix="weir-") as directory:
        trip, starts, grown, tables = measure(arguments, children, pathlib.Path(directory))
    text = report(arguments, trip, starts, grown, tables)
    print(text)
    if arguments.write:
        arguments.write.mkdir(parents=True, exist_ok=True)
        (arguments.write / "RESULTS.md").write_text(text)
        (arguments.write / "results.svg").write_text(draw(tables))


if __name__ == "__main__":
    main()
