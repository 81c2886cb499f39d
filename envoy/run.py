"""Weir at work: starts Redis, a demo upstream and Envoy with one of the sample files beside this one, sends a burst of requests
through it, prints what happened, and goes on serving until it is interrupted. Nothing is left running.
"""

import argparse
import contextlib
import ctypes
import http.client
import http.server
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WASM = ROOT / "target/wasm32-unknown-unknown/release/weir.wasm"
ENVOY = ROOT / ".tools/bin/envoy"
SAMPLES = {"redis": "redis.yaml", "local": "quickstart.yaml"}
BURST = 8


class Failed(Exception):
    """Something that the reader can mend."""


class Upstream(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = b"hello from the upstream\n"
        self.send_response(200)
        self.send_header("content-type", "text/plain")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(seconds, happened, otherwise):
    """Polls until something has happened."""
    end = time.monotonic() + seconds
    while not (result := happened()):
        if time.monotonic() > end:
            raise Failed(otherwise())
        time.sleep(0.02)
    return result


def start(children, command, output):
    """A child that ends with this process, whatever becomes of it."""

    def die_with_parent():
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG

    try:
        # In a session of its own: Ctrl-C is this process's alone.
        child = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, preexec_fn=die_with_parent, start_new_session=True
        )
    except FileNotFoundError:
        raise Failed(f"there is no {command[0]}; `make setup` installs it") from None
    children.append(child)
    return child


def answers(port, request, wanted):
    """Whether a server on the port answers so."""
    try:
        with socket.create_connection(("127.0.0.1", port), 0.5) as connection:
            connection.sendall(request)
            return wanted in connection.recv(4096)
    except OSError:
        return False


def start_redis(children, port):
    """A Redis without persistence, once it answers."""
    child = start(children, ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""], subprocess.DEVNULL)
    until(10, lambda: answers(port, b"PING\r\n", b"+PONG"), lambda: "Redis doesn't answer")
    return child


def sample(name, ports):
    """The sample file with this machine's paths and ports."""
    text = (ROOT / "envoy" / name).read_text()
    text = text.replace("/etc/weir/weir.wasm", str(WASM)).replace("0.0.0.0", "127.0.0.1")
    for documented, port in ports.items():
        text = text.replace(f"port_value: {documented}", f"port_value: {port}")
    return text


def burst(port, log):
    """Sends the burst; each row is request, status, remaining, retry-after, who decided."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    rows = []
    for number in range(1, BURST + 1):
        connection.request("GET", "/", headers={"x-api-key": "demo"})
        response = connection.getresponse()
        response.read()
        rows.append([f"GET / #{number}", response.status, response.headers["ratelimit-remaining"], response.headers["retry-after"]])
    lines = until(
        10,
        lambda: (found := [line for line in log.read_text().splitlines() if "source=" in line]) and len(found) >= BURST and found,
        lambda: f"Envoy's access log has no lines of the requests:\n{log.read_text()}",
    )
    return [[*row, line.split("source=")[1]] for row, line in zip(rows, lines)]


def table(rows):
    head = ["request", "status", "remaining", "retry-after", "decided by"]
    cells = [head] + [["" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def serve(arguments, children, directory):
    ports = {10000: free_port(), 9901: free_port(), 8000: free_port(), 6379: free_port()}
    upstream = http.server.ThreadingHTTPServer(("127.0.0.1", ports[8000]), Upstream)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    if arguments.store == "redis":
        start_redis(children, ports[6379])
    configuration = directory / "envoy.yaml"
    configuration.write_text(sample(SAMPLES[arguments.store], ports))
    log = directory / "envoy.log"
    with log.open("w") as output:
        options = ["--use-dynamic-base-id", "--log-level", "warning", "--file-flush-interval-msec", "50"]
        envoy = start(children, [str(ENVOY), "-c", str(configuration), *options], output)
    until(
        30,
        lambda: envoy.poll() is not None or answers(ports[9901], b"GET /ready HTTP/1.1\r\nhost: admin\r\n\r\n", b"200 OK"),
        lambda: f"Envoy doesn't get ready:\n{log.read_text()}",
    )
    if envoy.poll() is not None:
        raise Failed(f"Envoy has stopped:\n{log.read_text()}")
    print(f"{BURST} requests at once against `60/min burst 5` (envoy/{SAMPLES[arguments.store]}):\n")
    table(burst(ports[10000], log))
    print(f"\nproxy    http://127.0.0.1:{ports[10000]}/    curl -i -H 'x-api-key: me' http://127.0.0.1:{ports[10000]}/")
    print(f"metrics  http://127.0.0.1:{ports[9901]}/stats?filter=weir")
    if arguments.store == "redis":
        print(f"redis    redis-cli -p {ports[6379]} keys '*'")
    if not arguments.once:
        print("\nserving until Ctrl-C", flush=True)
        envoy.wait()
        raise Failed(f"Envoy has stopped:\n{log.read_text()}")


@contextlib.contextmanager
def children():
    """Processes that end with the block, whatever ends it; a failure is told and is the exit status."""
    started = []
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield started
    except Failed as failure:
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {failure}")
    except KeyboardInterrupt:
        print()
    finally:
        for child in started:
            child.terminate()
        for child in started:
            child.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=sorted(SAMPLES), default="redis")
    parser.add_argument("--once", action="store_true", help="end after the burst")
    arguments = parser.parse_args()
    with children() as started, tempfile.TemporaryDirectory(prefix="weir-") as directory:
        serve(arguments, started, pathlib.Path(directory))


if __name__ == "__main__":
    main()
