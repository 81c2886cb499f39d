"""Measures decisions of the script in Redis against `EVAL "return 1"`, the least that a script can cost: one connection, one request after the
other, in turns, in one run. Then what a subject takes in memory.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "envoy"))
import run as demo  # noqa: E402

ALGORITHMS = {"tb": "token bucket", "fw": "fixed window", "sl": "sliding log", "sw": "sliding window", "lb": "leaky bucket"}
SUBJECT = "0123456789abcdef"


class Redis:
    def __init__(self, children):
        self.port = demo.free_port()
        demo.start_redis(children, self.port)

    def cli(self, *words):
        return subprocess.run(["redis-cli", "-p", str(self.port), *map(str, words)], capture_output=True, text=True, check=True).stdout

    def benchmark(self, words, requests):
        """So many requests on one connection that waits for each reply; what redis-benchmark says."""
        command = ["redis-benchmark", "-p", str(self.port), "-c", "1", "-n", str(requests), "-q", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def rate(self, words, requests):
        """Requests per second."""
        return float(re.findall(r"([\d.]+) requests per second", self.benchmark(words, requests))[-1])


def script():
    """The script as it is shipped."""
    built = max((ROOT / "target").glob("**/weir-core-*/out/script.lua"), key=lambda file: file.stat().st_mtime)
    return built.read_text()


def decision(sha, algorithms, count=1_000_000_000, window=60_000):
    """A call for limits of these algorithms that aren't reached."""
    keys = [f"rl:{{r{i}:{SUBJECT}}}:{code}:{window}" for i, code in enumerate(algorithms)]
    arguments = [argument for code in algorithms for argument in (code, count, window, count, 1)]
    return ["EVALSHA", sha, len(keys), *keys, *arguments]


def measure(arguments, redis):
    sha = redis.cli("SCRIPT", "LOAD", script()).strip()
    cases = {'EVAL "return 1"': ["EVAL", "return 1", 1, "k"]}
    cases |= {f"one {name}": decision(sha, [code]) for code, name in ALGORITHMS.items()}
    cases["three token buckets"] = decision(sha, ["tb"] * 3)
    cases["a token bucket, a fixed window and a sliding window"] = decision(sha, ["tb", "fw", "sw"])
    times = {name: [] for name in cases}
    for turn in range(arguments.rounds):
        print(f"round {turn + 1} of {arguments.rounds}", file=sys.stderr)
        for name, words in cases.items():
            redis.cli("FLUSHALL")  # a log would grow from round to round
            times[name].append(1_000_000 / redis.rate(words, arguments.requests))
    least = times['EVAL "return 1"']
    print(f"one connection, {arguments.rounds} rounds of {arguments.requests} decisions in turns; medians\n")
    print("| | µs a decision | ratio (spread) |\n|---|---|---|")
    for name, taken in times.items():
        ratios = [one / other for one, other in zip(taken, least)]
        print(f"| {name} | {statistics.median(taken):.1f} | {statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f}) |")
    print("\n| | bytes a subject |\n|---|---|")
    for code, name in ALGORITHMS.items():
        for admitted in (1, 100, 10_000) if code == "sl" else (1,):
            redis.cli("FLUSHALL")
            words = decision(sha, [code], 20_000, 86_400_000)  # no key expires meanwhile
            redis.benchmark(words, admitted)
            entries = f", {admitted:,} admitted" if code == "sl" else ""
            print(f"| {name}{entries} | {int(redis.cli('MEMORY', 'USAGE', words[3])):,} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--requests", type=int, default=20_000)
    arguments = parser.parse_args()
    with demo.children() as children:
        measure(arguments, Redis(children))


if __name__ == "__main__":
    main()
