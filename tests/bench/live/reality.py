"""The simulator against what happens: the same catalog, devices and traces, played both ways.

``python -m tests.bench.live.reality`` starts an installation with two device kinds, of which
one is four times as slow (``tests/integration/uneven.py``), has its catalog and devices exported
by the product, sends the queries of each trace to it, and has ``modelless simulate`` play the same
trace on the exported files. Nothing is tuned in between. Each trace begins with a fresh
installation, which has seen no demand, as the simulator does. A query is in time if the answer
itself says so; what clients see is in a column of its own.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration import uneven
from tests.integration.deployment import CLI, Deployment, deployed, environment, short_directory
from tests.integration.trace_player import Asked, Told, play

TASKS = {
    "first": {"small": (0.80, 2.0, 3.0), "large": (0.90, 4.0, 8.0)},
    "second": {"small": (0.82, 3.0, 2.0), "large": (0.92, 3.0, 9.0)},
}
"""By task and model: accuracy, ms of a batch and of each row, on the quick kind."""
FLOORS = (None, 0.85)
"""Every second query asks for the large model."""
SLO_MS = 300.0
FULL_QPS = 210.0
"""What both kinds serve together at batches of eight, half of the queries with the floor."""
START_S = 600.0
LIKE_INSTALLED = ("--fixed-fleet", "--tick-s", "1")


@dataclass(frozen=True, slots=True)
class Course:
    """How many queries of each task come, over time."""

    seconds: float
    load: Callable[[float], float]
    """Part of ``FULL_QPS`` at a time in s."""
    first: Callable[[float], float] = lambda _: 0.5
    """Part of the queries that ask for the first task."""


COURSES = {
    "steady": Course(50.0, lambda _: 0.75),
    "step": Course(60.0, lambda at_s: 0.2 if at_s < 25 else 0.8),
    "flash": Course(60.0, lambda at_s: 1.6 if 30 <= at_s < 36 else 0.3),
    "shift": Course(60.0, lambda _: 0.7, lambda at_s: 0.85 if at_s < 30 else 0.15),
}


@dataclass(frozen=True, slots=True)
class Query:
    at_s: float
    task: str
    floor: float | None


def drawn(course: Course, seed: int) -> list[Query]:
    """A Poisson process whose rate follows the course."""
    draw = random.Random(seed)
    found: list[Query] = []
    at_s = 0.0
    while True:
        rate_qps = FULL_QPS * course.load(at_s)
        at_s += draw.expovariate(rate_qps)
        if at_s >= course.seconds:
            return found
        task = "first" if draw.random() < course.first(at_s) else "second"
        found.append(Query(round(at_s, 6), task, FLOORS[draw.random() < 0.5]))


def trace_file(queries: Sequence[Query]) -> str:
    rows = [
        f"{query.at_s},{query.task},{SLO_MS:g},{'' if query.floor is None else query.floor},"
        for query in queries
    ]
    return "\n".join(["arrival_s,task,latency_slo_ms,min_accuracy,max_cost_usd_per_1k", *rows, ""])


def body(query: Query) -> dict[str, Any]:
    slo = {"latency_ms": SLO_MS} | ({} if query.floor is None else {"accuracy": query.floor})
    return {"task": query.task, "inputs": [[1, 2, 3, 4]], "slo": slo}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a trace."""

    goodput_qps: float
    violated: float
    late: float
    accuracy: float
    seen_violated: float | None = None
    """By the clock of the clients."""
    slow: float | None = None
    """Part of the answers that came from the slow kind."""


def happened(told: Sequence[Told], seconds: float) -> Outcome:
    good = [one for one in told if one.status == 200 and one.body["slo_met"]]
    seen = [one for one in told if one.status == 200 and one.took_ms <= SLO_MS]
    late = sum(one.status == 200 and not one.body["slo_met"] for one in told)
    late += sum(one.body.get("code") == "DEADLINE_EXCEEDED" for one in told)
    slow = sum(one.body["worker"].startswith("cpu-1-slow-") for one in good)
    return Outcome(
        goodput_qps=len(good) / seconds,
        violated=1 - len(good) / len(told),
        late=late / len(told),
        accuracy=sum(one.body["accuracy"] for one in good) / max(1, len(good)),
        seen_violated=1 - len(seen) / len(told),
        slow=slow / max(1, len(good)),
    )


def simulated(folder: Path, trace: Path, seconds: float) -> Outcome:
    files = ["--catalog", str(folder / "catalog.csv"), "--devices", str(folder / "devices.csv")]
    ran = subprocess.run(
        [*CLI, "simulate", *files, "--trace", str(trace), "--json", *LIKE_INSTALLED],
        stdout=subprocess.PIPE,
        check=True,
    )
    found = json.loads(ran.stdout)
    return Outcome(
        goodput_qps=found["in_time"] / seconds,
        violated=found["violation_ratio"],
        late=found["late"] / found["requests"],
        accuracy=found["effective_accuracy"],
    )


@contextmanager
def prepared() -> Iterator[tuple[Path, Path]]:
    """A folder with the exported files, and a state directory where all is measured."""
    with short_directory() as home, uneven.installed(home) as packages:
        os.environ["PYTHONPATH"] = str(packages)
        state = home / "s"
        state.mkdir()
        for task, models in TASKS.items():
            uneven.register(state, task, models)
        with started(state) as running:
            for what in ("catalog", "devices"):
                export(running, what, home / f"{what}.csv")
        yield home, state


@contextmanager
def started(state: Path) -> Iterator[Deployment]:
    with deployed(state, arguments=["--slices", uneven.SLICES], start_s=START_S) as running:
        yield running


def export(running: Deployment, what: str, to: Path) -> None:
    subprocess.run(
        [*CLI, "export", what, "--to", str(to)],
        env=environment(running.state_dir, running.port),
        check=True,
    )


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--only", default=",".join(COURSES))
    asked.add_argument("--seeds", type=int, default=1)
    asked.add_argument("--detail", action="store_true", help="What happened in each ten seconds.")
    chosen = asked.parse_args()
    print("| trace, seed | | goodput/s | violated | late | accuracy | clients saw | slow kind |")
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    with prepared() as (home, state):
        for name in chosen.only.split(","):
            for seed in range(chosen.seeds):
                course = COURSES[name]
                queries = drawn(course, seed)
                trace = home / "trace.csv"
                trace.write_text(trace_file(queries))
                copy = home / "c"
                shutil.copytree(state, copy, ignore=shutil.ignore_patterns("run"))
                with started(copy) as running:
                    told = asyncio.run(
                        play(running.port, [Asked(one.at_s, body(one)) for one in queries])
                    )
                shutil.rmtree(copy)
                wrong = Counter(
                    one.body.get("code") for one in told if one.status not in (200, 503, 504)
                )
                assert not wrong, wrong
                show(f"{name}, {seed}", "simulated", simulated(home, trace, course.seconds))
                show("", "happened", happened(told, course.seconds))
                if chosen.detail:
                    detail(told)


def detail(told: Sequence[Told]) -> None:
    """What became of the queries of each ten seconds, and how slow batches were."""
    spans: dict[int, list[Told]] = {}
    for one in told:
        spans.setdefault(int(one.at_s // 10), []).append(one)
    for span, those in sorted(spans.items()):
        codes = Counter(
            one.body.get("code") or ("in time" if one.body["slo_met"] else "late") for one in those
        )
        slower = sorted(
            one.body["run_ms"] / expected_ms(one.body) for one in those if one.status == 200
        )
        middle, most = (slower[len(slower) * part // 100] for part in (50, 95))
        print(f"  from {10 * span} s: {dict(codes)}; batches took {middle:.2f}, p95 {most:.2f}")


def expected_ms(reply: dict[str, Any]) -> float:
    """What the batch of a reply takes where nothing else runs."""
    model = str(reply["variant"]).partition("-")[0]
    task = next(models for models in TASKS.values() if models[model][0] == reply["accuracy"])
    _, batch_ms, row_ms = task[model]
    times = uneven.TIMES if "-slow-" in reply["worker"] else 1
    return times * (batch_ms + row_ms * float(reply["batch_size"]))


def show(what: str, how: str, found: Outcome) -> None:
    seen = "" if found.seen_violated is None else f"{100 * found.seen_violated:.2f} %"
    slow = "" if found.slow is None else f"{100 * found.slow:.1f} %"
    print(
        f"| {what} | {how} | {found.goodput_qps:.1f} | {100 * found.violated:.2f} % "
        f"| {100 * found.late:.2f} % | {found.accuracy:.4f} | {seen} | {slow} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
