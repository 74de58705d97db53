"""A worker that hangs for good: ``python -m tests.bench.live.silent_worker``.

The only worker of the machine serves the example task; after some seconds it is stopped and never
goes on. What is printed is what became of the queries of each second, where that is not what became
of those of the second before, and at the end for how long some had no answer. First start: a minute
or two, in which variants are measured.
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

BEFORE_S, AFTER_S = 4.0, 80.0
QPS = 20.0
BODY = {"task": "digits", "slo": {"latency_ms": 500}, "inputs": [[0.0] * 64]}


def show(told: list[Told]) -> None:
    spans: dict[int, Counter[str]] = {}
    for one in told:
        outcome = str(one.body.get("code", "answered"))
        spans.setdefault(int(one.at_s - BEFORE_S + 1_000) - 1_000, Counter())[outcome] += 1
    before: set[str] = set()
    print("| second after it hung | what became of its queries |")
    print("|--:|---|")
    for span, outcomes in sorted(spans.items()):
        if len(outcomes) > 1 or outcomes.keys() != before:
            words = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
            print(f"| {span} | {words} |")
        before = set(outcomes)
    lost = [one for one in told if "code" in one.body and one.at_s >= BEFORE_S]
    again_s = max((one.at_s for one in lost), default=BEFORE_S) - BEFORE_S
    every = Counter(str(one.body["code"]) for one in lost)
    print(
        f"\n{len(lost)} queries without an answer ({dict(every)}), the last after {again_s:.1f} s"
    )


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--after-s", type=float, default=AFTER_S)
    asked.add_argument("--settle-s", type=float, default=10.0)
    chosen = asked.parse_args()
    queries = [Asked(n / QPS, BODY) for n in range(int((BEFORE_S + chosen.after_s) * QPS))]
    with short_directory() as home:
        state = Path(home) / "s"
        state.mkdir()
        with deployed(state, arguments=["--example", "digits"], start_s=900.0) as running:
            time.sleep(chosen.settle_s)
            (worker,) = running.get("/v1/workers")["workers"]
            hangs = threading.Timer(BEFORE_S, os.kill, (worker["pid"], signal.SIGSTOP))
            hangs.start()
            told = asyncio.run(play(running.port, queries))
            hangs.join()
            lost = running.get("/v1/events?kind=worker_lost")["events"]
    show(told)
    for event in lost:
        print(event["message"])


if __name__ == "__main__":
    main()
