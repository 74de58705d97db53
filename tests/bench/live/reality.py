"""The simulator against what happens: the same catalog, devices and traces, played both ways.

``python -m tests.bench.live.reality`` starts an installation with two device kinds, of which one is
four times as slow (``tests/integration/uneven.py``), has its catalog and devices exported by the
product, sends the queries of each trace to it, and has ``modelless simulate`` play the same trace
on the exported files. Nothing is tuned in between. Each trace begins with a fresh installation,
which has seen no demand, as the simulator does. A query is in time if the answer itself says so;
what clients see is in a column of its own.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.serving.load import summary
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
CLASSES = tuple((task, floor) for task in TASKS for floor in FLOORS)
ZIPF = (12.0, 4.0, 3.0, 6.0)
"""How often each class is asked for: in proportion to 1, 1/2, 1/3 and 1/4."""
QUICK = uneven.SLICES.partition(",")[0].partition("x")[2]
VICTIMS = 4
"""Seeds of the simulator that are tried for the one that hits the quick kind."""


def of_first(part: float) -> tuple[float, ...]:
    """Weights of the classes where so many queries ask for the first task."""
    return (part, part, 1.0 - part, 1.0 - part)


@dataclass(frozen=True, slots=True)
class Course:
    """How many queries of each class come, over time."""

    seconds: float
    load: Callable[[float], float]
    """Part of ``FULL_QPS`` at a time in s."""
    weights: Callable[[float], Sequence[float]] = lambda _: of_first(0.5)
    """Of ``CLASSES``."""
    kills_at_s: float | None = None
    """When the worker of the quick kind is killed."""


COURSES = {
    "steady": Course(50.0, lambda _: 0.75),
    "step": Course(60.0, lambda at_s: 0.2 if at_s < 25 else 0.8),
    "flash": Course(60.0, lambda at_s: 1.6 if 30 <= at_s < 36 else 0.3),
    "shift": Course(60.0, lambda _: 0.7, lambda at_s: of_first(0.85 if at_s < 30 else 0.15)),
    "zipf": Course(60.0, lambda _: 0.7, lambda at_s: ZIPF if at_s < 30 else ZIPF[::-1]),
    "failure": Course(60.0, lambda _: 0.4, kills_at_s=25.0),
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
        [(task, floor)] = draw.choices(CLASSES, course.weights(at_s))
        found.append(Query(round(at_s, 6), task, floor))


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


def simulated(home: Path, trace: Path, course: Course, away_s: float) -> Outcome:
    if course.kills_at_s is None:
        return simulated_once(home, trace, course)
    fails = ("--failures-every-s", f"{course.kills_at_s}", "--provision-s", f"{away_s}")
    drawn = [
        simulated_once(home, trace, course, *fails, "--seed", f"{seed}") for seed in range(VICTIMS)
    ]
    return max(drawn, key=lambda one: one.violated)


def simulated_once(home: Path, trace: Path, course: Course, *more: str) -> Outcome:
    files = ["--catalog", str(home / "catalog.csv"), "--devices", str(home / "devices.csv")]
    ran = subprocess.run(
        [*CLI, "simulate", *files, "--trace", str(trace), "--json", *LIKE_INSTALLED, *more],
        stdout=subprocess.PIPE,
        check=True,
    )
    found = json.loads(ran.stdout)
    return Outcome(
        goodput_qps=found["in_time"] / course.seconds,
        violated=found["violation_ratio"],
        late=found["late"] / found["requests"],
        accuracy=found["effective_accuracy"],
    )


@contextmanager
def prepared(keep: Path | None) -> Iterator[Path]:
    """A folder with the exported files, and the state directory ``s`` where all is measured."""
    with short_directory() as fresh:
        home = keep or fresh
        known = (home / "away_s").exists()
        with uneven.installed(fresh) as packages:
            os.environ["PYTHONPATH"] = str(packages)
            if not known:
                measure(home)
            yield home


def measure(home: Path) -> None:
    state = home / "s"
    state.mkdir(parents=True, exist_ok=True)
    for task, models in TASKS.items():
        uneven.register(state, task, models)
    with started(state) as running:
        for what in ("catalog", "devices"):
            export(running, what, home / f"{what}.csv")
        before = kill(running)
        began_s = time.monotonic()
        running.until(lambda: quick(running)["pid"] != before and ready(running), "a successor")
        (home / "away_s").write_text(f"{time.monotonic() - began_s:.1f}")


def quick(running: Deployment) -> dict[str, Any]:
    """The worker of the quick kind, which has to be there."""
    found = [one for one in running.workers() if one["device_kind"] == QUICK]
    assert len(found) == 1, found
    return found[0]


def ready(running: Deployment) -> bool:
    models = sum(len(models) for models in TASKS.values())
    states = [replica["state"] for replica in quick(running)["replicas"]]
    return states == ["ready"] * models


def kill(running: Deployment) -> int:
    """Kill the worker of the quick kind; the process that it was."""
    pid: int = quick(running)["pid"]
    os.kill(pid, signal.SIGKILL)
    return pid


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
    asked.add_argument("--keep", type=Path, metavar="FOLDER", help="For what was measured.")
    chosen = asked.parse_args()
    with prepared(chosen.keep) as home:
        away_s = float((home / "away_s").read_text())
        print(f"A worker that is killed is away for {away_s} s.\n")
        print(
            "| trace, seed | | goodput/s | violated | late | accuracy | clients saw | slow kind |"
        )
        print("|---|---|--:|--:|--:|--:|--:|--:|")
        for name in chosen.only.split(","):
            for seed in range(chosen.seeds):
                course = COURSES[name]
                queries = drawn(course, seed)
                trace = home / "trace.csv"
                trace.write_text(trace_file(queries))
                told = lived(home, course, queries)
                wrong = Counter(
                    one.body.get("code") for one in told if one.status not in (200, 503, 504)
                )
                assert not wrong, wrong
                show(f"{name}, {seed}", "simulated", simulated(home, trace, course, away_s))
                show("", "happened", happened(told, course.seconds))
                if chosen.detail:
                    detail(told)


def lived(home: Path, course: Course, queries: Sequence[Query]) -> list[Told]:
    """What a fresh installation makes of the queries of a trace."""

    async def both(running: Deployment) -> list[Told]:
        asked = [Asked(one.at_s, body(one)) for one in queries]
        played = asyncio.create_task(play(running.port, asked))
        if course.kills_at_s is not None:
            await asyncio.sleep(course.kills_at_s)
            await asyncio.to_thread(kill, running)
        return await played

    with short_directory() as folder:
        copy = folder / "c"
        shutil.copytree(home / "s", copy, ignore=shutil.ignore_patterns("run"))
        with started(copy) as running:
            return asyncio.run(both(running))


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
        middle, most = (slower[len(slower) * part // 100] if slower else 0.0 for part in (50, 95))
        took_ms = summary([one.took_ms for one in those])
        print(
            f"  from {10 * span} s: {dict(codes)}; batches took {middle:.2f}, p95 {most:.2f};"
            f" p50 {took_ms['p50']:.0f} ms, p99 {took_ms['p99']:.0f}"
        )


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
