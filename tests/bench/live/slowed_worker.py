"""A worker that hardly gets to run: ``python -m tests.bench.live.slowed_worker``.

Two workers of one core serve the example task; after some seconds one of them is stopped and
continued again and again, and then left alone. What is printed of each half second is who answered,
and how long it took for the clients. First start: a minute or two, in which variants are measured.
"""

import argparse
import asyncio
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

from tests.integration.deployment import deployed, short_directory
from tests.integration.trace_player import Asked, Told, play

BEFORE_S, SLOWED_S, AFTER_S = 4.0, 10.0, 10.0
STOPPED_S, RUNNING_S = 0.045, 0.005
QPS = 50.0
SPAN_S = 0.5
BODY = {
    "task": "digits",
    "slo": {"latency_ms": 500, "accuracy": 0.99},
    "inputs": [[0.0] * 64],
}


def slow_down(pid: int) -> None:
    """Let a process run for a tenth of the time, from some seconds on, for some seconds."""
    time.sleep(BEFORE_S)
    end_s = time.monotonic() + SLOWED_S
    while time.monotonic() < end_s:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(STOPPED_S)
        os.kill(pid, signal.SIGCONT)
        time.sleep(RUNNING_S)


def show(told: list[Told], slowed: str) -> None:
    print("| from, s | the slowed one answered | the other | refused | p50 ms | most ms |")
    print("|--:|--:|--:|--:|--:|--:|")
    spans: dict[int, list[Told]] = {}
    for one in told:
        spans.setdefault(int(one.at_s / SPAN_S), []).append(one)
    for span, those in sorted(spans.items()):
        by = Counter(one.body.get("worker", "") for one in those)
        took_ms = sorted(one.took_ms for one in those)
        print(
            f"| {span * SPAN_S:.1f} | {by[slowed]} | {by.total() - by[slowed] - by['']} "
            f"| {by['']} | {took_ms[len(took_ms) // 2]:.1f} | {took_ms[-1]:.1f} |"
        )


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--qps", type=float, default=QPS)
    asked.add_argument("--settle-s", type=float, default=10.0)
    chosen = asked.parse_args()
    count = int((BEFORE_S + SLOWED_S + AFTER_S) * chosen.qps)
    queries = [Asked(number / chosen.qps, BODY) for number in range(count)]
    with short_directory() as home:
        state = Path(home) / "s"
        state.mkdir()
        arguments = ["--example", "digits", "--slices", "2xcpu-1"]
        with deployed(state, arguments=arguments, start_s=900.0) as running:
            time.sleep(chosen.settle_s)
            worker = running.get("/v1/workers")["workers"][0]
            slower = threading.Thread(target=slow_down, args=(worker["pid"],), daemon=True)
            slower.start()
            told = asyncio.run(play(running.port, queries))
            slower.join()
    print(f"slowed from {BEFORE_S:g} to {BEFORE_S + SLOWED_S:g} s, {chosen.qps:g} queries/s\n")
    show(told, worker["worker"])


if __name__ == "__main__":
    main()
