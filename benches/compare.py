"""Measures Weir beside Envoy without a filter and beside a wasm filter that does nothing: the same upstream, the same load, in turns,
in one run. What counts are the ratios; the machine's mood is in the spread.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "envoy"))
import run as demo  # noqa: E402

NOOP = ROOT / "target/wasm32-unknown-unknown/release/noop.wasm"
ROUTER = "          - name: envoy.filters.http.router"
UPSTREAM = """
admin:
  address: {socket_address: {address: 127.0.0.1, port_value: 9901}}
static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: 10000}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: upstream
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [{match: {prefix: /}, direct_response: {status: 200, body: {inline_string: ok}}}]
"""


def between(text, start, end, instead):
    """The text with something else between two marks."""
    before, rest = text.split(start, 1)
    return before + instead + end + rest.split(end, 1)[1]


def limiter(sample, ports):
    """A sample with a limit that is never reached, and without its access log, which costs all of them the same."""
    text = between(demo.sample(sample, ports), "          access_log:", "          http_filters:", "")
    return text.replace("limits: [60/min burst 5]", "limits: [1000000000/s]")


def cases(ports):
    local = limiter("quickstart.yaml", ports)
    return {
        "no filter": between(local, "          - name: weir\n", ROUTER, ""),
        "a wasm filter that does nothing": local.replace(str(demo.WASM), str(NOOP)),
        "weir, local": local,
        "weir, Redis": limiter("redis.yaml", ports),
    }


def start_envoy(children, directory, name, text):
    """An Envoy with one worker on ports of its own; its port."""
    port, admin = demo.free_port(), demo.free_port()
    file, log = directory / f"{name}.yaml", directory / f"{name}.log"
    file.write_text(text.replace("port_value: 10000", f"port_value: {port}").replace("port_value: 9901", f"port_value: {admin}"))
    with log.open("w") as output:
        command = [str(demo.ENVOY), "-c", str(file), "--use-dynamic-base-id", "--log-level", "error", "--concurrency", "1"]
        demo.start(children, command, output)
    demo.until(
        30,
        lambda: demo.answers(admin, b"GET /ready HTTP/1.1\r\nhost: admin\r\n\r\n", b"200 OK"),
        lambda: f"Envoy doesn't get ready:\n{log.read_text()}",
    )
    return port


def load(port, connections, seconds):
    """Requests per second, median and 99th percentile of the latency in microseconds."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-H", "x-api-key: bench", f"http://127.0.0.1:{port}/"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in text or "Socket errors" in text:
        raise demo.Failed(f"not every request was let in:\n{text}")

    def microseconds(percentile):
        number, unit = re.search(rf"{percentile}%\s+([\d.]+)(us|ms|s)", text).groups()
        return float(number) * {"us": 1, "ms": 1000, "s": 1_000_000}[unit]

    return float(re.search(r"Requests/sec:\s+([\d.]+)", text).group(1)), microseconds(50), microseconds(99)


def row(name, runs, reference):
    """A line of the table."""
    rates, medians, tails = zip(*runs)
    # Each round's ratio is taken within the round: what disturbs one run disturbs its neighbours.
    ratios = [rate / other for rate, other in zip(rates, reference)]
    spread = f"{min(ratios):.2f}–{max(ratios):.2f}"
    rate, ratio = statistics.median(rates), statistics.median(ratios)
    return f"| {name} | {rate:,.0f} | {ratio:.2f} ({spread}) | {statistics.median(medians):,.0f} | {statistics.median(tails):,.0f} |"


def measure(arguments, children, directory):
    redis = demo.free_port()
    demo.start(children, ["redis-server", "--port", str(redis), "--bind", "127.0.0.1", "--save", ""], subprocess.DEVNULL)
    demo.until(10, lambda: demo.answers(redis, b"PING\r\n", b"+PONG"), lambda: "Redis doesn't answer")
    upstream = start_envoy(children, directory, "upstream", UPSTREAM)
    ports = {}
    for number, (name, text) in enumerate(cases({8000: upstream, 6379: redis}).items()):
        ports[name] = start_envoy(children, directory, f"case-{number}", text)
    runs = {name: [] for name in ports}
    for name, port in ports.items():
        load(port, arguments.connections, 1)  # warm
    for turn in range(arguments.rounds):
        print(f"round {turn + 1} of {arguments.rounds}", file=sys.stderr)
        for name, port in ports.items():
            runs[name].append(load(port, arguments.connections, arguments.seconds))
    reference = [rate for rate, _, _ in runs["a wasm filter that does nothing"]]
    print(f"{arguments.connections} connections, one worker, {arguments.rounds} rounds of {arguments.seconds} s in turns; medians\n")
    print("| | requests/s | ratio to the filter that does nothing (spread) | median µs | 99 % µs |")
    print("|---|---|---|---|---|")
    for name in ports:
        print(row(name, runs[name], reference))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--connections", type=int, default=32)
    arguments = parser.parse_args()
    with demo.children() as children, tempfile.TemporaryDirectory(prefix="weir-") as directory:
        measure(arguments, children, pathlib.Path(directory))


if __name__ == "__main__":
    main()
