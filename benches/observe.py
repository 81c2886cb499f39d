"""Draws what the dashboard shows: an Envoy with Redis behind it under three clients for a minute and a half, Redis killed for twenty
seconds of it, a real Prometheus beside it, and the answers to the dashboard's own queries as an SVG. Makes envoy/observability/dashboard.svg.
"""

import contextlib
import html
import http.client
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "envoy"))
import run as demo  # noqa: E402

HERE = ROOT / "envoy/observability"
SECONDS, AWAY, BACK = 90, 40, 60
WINDOW = "5s"
# Who asks how often a second.
CLIENTS = {"acme": 40, "globex": 80, "initech": 15}
RULES = {
    "store": {"cluster": "weir-redis"},
    "rules": [
        {"name": "per-key", "key": ["header:x-api-key"], "limits": ["50/s"]},
        {"name": "trial", "key": ["header:x-api-key"], "limits": ["30/s burst 10"], "mode": "shadow"},
    ],
}
PANELS = ["Requests", "Denied share by rule", "Latency of Redis", "Calls to Redis", "Fallback in use", "Way to Redis"]
COLOURS = ["#2f7d4f", "#c0392b", "#d08a1d", "#2d6cb5", "#7d4fa8", "#6b7280"]


def client(port, key, each_second, end):
    """Asks at an even pace, whatever the answers are."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    due = time.monotonic()
    while time.monotonic() < end:
        time.sleep(max(0, due - time.monotonic()))
        due += 1 / each_second
        connection.request("GET", "/", headers={"x-api-key": key})
        connection.getresponse().read()


def configuration(ports):
    text = demo.sample("redis.yaml", ports).replace("route: {cluster: upstream}", "direct_response: {status: 200}")
    start = text.index("                configuration:\n")
    end = text.index("          - name: envoy.filters.http.router", start)
    value = json.dumps(json.dumps(RULES))
    plugin = f'                configuration:\n                  "@type": type.googleapis.com/google.protobuf.StringValue\n                  value: {value}\n'
    return (HERE / "stats.yaml").read_text() + text[:start] + plugin + text[end:]


def prometheus(children, directory, admin):
    port = demo.free_port()
    target = f"{{job_name: envoy, metrics_path: /stats/prometheus, static_configs: [{{targets: ['127.0.0.1:{admin}']}}]}}"
    settings = f"global: {{scrape_interval: 500ms, scrape_timeout: 500ms}}\nscrape_configs: [{target}]\n"
    (directory / "prometheus.yml").write_text(settings)
    options = [f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data"]
    demo.start(children, ["prometheus", *options, f"--web.listen-address=127.0.0.1:{port}"], subprocess.DEVNULL)
    demo.until(20, lambda: demo.answers(port, b"GET /-/ready HTTP/1.0\r\n\r\n", b"200 OK"), lambda: "Prometheus doesn't get ready")
    return port


def watch(children, directory):
    """Lets the traffic run; Prometheus's port, and when it began."""
    ports = {documented: demo.free_port() for documented in (10000, 9901, 6379)}
    store = demo.start_redis(children, ports[6379])
    (directory / "envoy.yaml").write_text(configuration(ports))
    options = ["--use-dynamic-base-id", "--log-level", "error"]
    demo.start(children, [str(demo.ENVOY), "-c", str(directory / "envoy.yaml"), *options], subprocess.DEVNULL)
    ready = b"GET /ready HTTP/1.1\r\nhost: admin\r\n\r\n"
    demo.until(30, lambda: demo.answers(ports[9901], ready, b"200 OK"), lambda: "Envoy doesn't get ready")
    port = prometheus(children, directory, ports[9901])
    began, end = time.time(), time.monotonic() + SECONDS
    clients = [threading.Thread(target=client, args=(ports[10000], *who, end)) for who in CLIENTS.items()]
    for thread in clients:
        thread.start()
    time.sleep(AWAY)
    store.kill()
    store.wait()
    time.sleep(BACK - AWAY)
    demo.start_redis(children, ports[6379])
    for thread in clients:
        thread.join()
    return port, began


def series(port, began, target):
    """The lines that a query of the dashboard gives: name, and points of seconds and values."""
    query = target["expr"].replace("$__rate_interval", WINDOW).replace("$instance", ".*")
    asked = urllib.parse.urlencode({"query": query, "start": began + 5, "end": began + SECONDS, "step": "0.5"})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", f"/api/v1/query_range?{asked}")
    for found in json.load(connection.getresponse())["data"]["result"]:
        name = target["legendFormat"]
        for label, value in found["metric"].items():
            name = name.replace("{{" + label + "}}", value)
        yield name, [(at - began, float(value)) for at, value in found["values"] if value != "NaN"]


def rounded(value):
    """A number to write at an axis' end: not below the value."""
    for step in (10**power * digit for power in range(-2, 8) for digit in (1, 2, 5)):
        if value <= step:
            return step
    return value


def panel(title, unit, lines, x, y, width, height):
    top = rounded(max((value for _, points in lines for _, value in points), default=1) or 1)
    across = lambda at: x + at / SECONDS * width  # noqa: E731
    down = lambda value: y + height - value / top * height  # noqa: E731
    scale = 100 if unit == "percentunit" else 1
    suffix = {"percentunit": " %", "µs": " µs", "reqps": "/s", "ops": "/s"}.get(unit, "")
    yield f'<text x="{x}" y="{y - 12}" font-weight="bold">{html.escape(title)}</text>'
    yield f'<rect x="{across(AWAY):.1f}" y="{y}" width="{across(BACK) - across(AWAY):.1f}" height="{height}" fill="#f3e3e1"/>'
    for value in (0, top / 2, top):
        yield f'<line x1="{x}" x2="{x + width}" y1="{down(value):.1f}" y2="{down(value):.1f}" stroke="#ddd"/>'
        yield f'<text x="{x - 6}" y="{down(value) + 4:.1f}" text-anchor="end" fill="#666">{value * scale:g}{suffix}</text>'
    for at in range(0, SECONDS + 1, 30):
        yield f'<text x="{across(at):.1f}" y="{y + height + 16}" text-anchor="middle" fill="#666">{at} s</text>'
    for place, (name, points) in enumerate(lines):
        colour = COLOURS[place % len(COLOURS)]
        path = " ".join(f"{across(at):.1f},{down(value):.1f}" for at, value in points)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
        row, column = divmod(place, 2)
        left, base = x + column * width / 2, y + height + 36 + row * 16
        yield f'<rect x="{left:.1f}" y="{base - 9}" width="10" height="10" fill="{colour}"/>'
        yield f'<text x="{left + 15:.1f}" y="{base}" fill="#333">{html.escape(name)}</text>'


def draw(port, began):
    dashboard = json.loads((HERE / "dashboard.json").read_text())
    panels = {panel["title"]: panel for panel in dashboard["panels"]}
    width, height, across, down = 380, 130, 470, 250
    asked = ", ".join(f"{name} {rate}/s" for name, rate in CLIENTS.items())
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{across * 2 + 10}" height="{down * 3 + 50}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="60" y="26" fill="#333">Limit 50/s a key, and one of 30/s in shadow; clients: {asked}. Redis is killed in the shaded time.</text>',
    ]
    for place, title in enumerate(PANELS):
        found = panels[title]
        lines = [line for target in found["targets"] for line in series(port, began, target)]
        # What never moves takes no room in a picture.
        lines = [(name, points) for name, points in lines if any(value > 0 for _, value in points)]
        row, column = divmod(place, 2)
        unit = found["fieldConfig"]["defaults"]["unit"]
        out += panel(title, unit, lines, 70 + column * across, 75 + row * down, width, height)
    (HERE / "dashboard.svg").write_text("\n".join([*out, "</svg>"]) + "\n")


def main():
    with demo.children() as children, contextlib.ExitStack() as stack:
        directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weir-")))
        print(f"{SECONDS} s of traffic", file=sys.stderr)
        draw(*watch(children, directory))


if __name__ == "__main__":
    main()
