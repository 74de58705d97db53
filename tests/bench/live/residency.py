"""Memory for 20 of 200 models, live: ``python -m tests.bench.live.residency``.

Nine classifiers of scikit-learn's digits, from a linear one of 4 KiB to forests of 25 MiB, are
exported as ONNX and registered by ``modelless register``, which measures each. Each of 200 tasks
then gets one of them, by chance: the same artifact and the same profile under the task's own name.
To a worker these are 200 models: each takes memory of its own and is read, checked and loaded from
its file. An installation of two workers whose memory holds a tenth of them answers queries whose
tasks follow a Zipf distribution; the most popular tasks change places with others at regular
times. The trace is the same for each eviction rule, and each begins with a fresh installation.

Printed for each rule: loads, the seconds that they take by the profiles and that they took, and
what clients were told; with ``--why`` also what had become of the variant of each query that was
refused as ``COLD``. With ``--equal`` all models are of one size and load for 0.02 to 0.4 s, which
they wait for, so that other programs on the machine change nothing. With ``--simulated`` nothing is
started but for the export:
``modelless simulate`` plays the trace on the exported catalog. With ``--cache`` it is played as two
pure caches (``tests.bench.planning.eviction``), beside rules that know all rates, or the future:
what could be saved at all.
"""

import argparse
import asyncio
import csv
import json
import math
import random
import shutil
import subprocess
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import numpy as np

from controlplane.cli.commands.planning.export import catalog_rows, device_rows
from controlplane.machine import machine_kinds
from controlplane.profiling.due.staleness import host_of
from controlplane.settings import load_settings
from controlplane.timestamps import timestamp
from tests.integration.deployment import CLI, Deployment, deployed, environment, short_directory
from tests.integration.trace_player import Asked, Told, play
from tests.ports import free_port
from variants.artifacts.store import FileArtifactStore
from variants.catalog.protocol import Catalog
from variants.catalog.sql import open_catalog
from variants.types import (
    CatalogSnapshot,
    LatencyPoint,
    ModelName,
    ModelVersion,
    Precision,
    Profile,
    Registration,
    Slo,
    Stage,
    Task,
    TaskName,
    TensorSpec,
    Variant,
    VariantName,
)

TASKS = 200
HELD = 20
EQUAL_MIB, EQUAL_MS, EQUAL_LOADS_S = 20.0, 2.0, (0.02, 0.4)
"""With ``--equal``: what each model takes, a batch of it, and the bounds of loads (log-uniform)."""
WORKERS = 2
EXPONENT = 0.9
HEAD = 20
"""So many of the most popular tasks change places with others."""
SLOS_MS = (100.0, 300.0, 1_000.0)
"""Of which each task has one."""
RULES = ("lru", "gdsf", "modelless")
SETTLE_S = 10.0
"""After the start, before the first query."""
REPORTED_S = 3.0
"""After the last answer: workers report once a second."""


class Query(NamedTuple):
    at_s: float
    task: int


# -- the models ------------------------------------------------------------------------------------


def classifiers() -> dict[str, Any]:
    """What is trained, by name: small and large, quick and slow to load."""
    from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.svm import SVC

    network = partial(MLPClassifier, max_iter=3, random_state=0)
    return {
        "linear": LogisticRegression(max_iter=200),
        "mlp-256": network((256,)),
        "mlp-1024": network((1024, 1024)),
        "mlp-2048": network((2048, 2048)),
        "forest-100": RandomForestClassifier(100, random_state=0),
        "forest-400": RandomForestClassifier(400, random_state=0),
        "extra-300": ExtraTreesClassifier(300, random_state=0),
        "svc": SVC(random_state=0),
        "neighbors": KNeighborsClassifier(3),
    }


def register_originals(state: Path, folder: Path) -> None:
    """Train, export and register each classifier under a task of its own name."""
    from sklearn.datasets import load_digits

    from controlplane.client.exporting.sklearn_onnx import export_classifier

    rows, labels = load_digits(return_X_y=True)
    rows = rows.astype(np.float32) / 16
    held_out = folder / "held-out.npz"
    np.savez(held_out, features=rows[1_200:], labels=labels[1_200:])
    for name, model in classifiers().items():
        file = folder / f"{name}.onnx"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(rows[:1_200], labels[:1_200])
        export_classifier(model, rows[1_200:], file)
        options = ["--task", name, "--eval", str(held_out), "--variants", "onnx-fp32"]
        subprocess.run(
            [*CLI, "register", str(file), *options, "--progress", "none"],
            env=environment(state, free_port(), workers=WORKERS),
            stdout=subprocess.DEVNULL,
            check=True,
        )


def register_copies(
    measured: CatalogSnapshot, catalog: Catalog, seed: int, tasks: int = TASKS
) -> None:
    """So many tasks, each with one of the measured models: its artifact and its profile."""
    draw = random.Random(seed)
    names = [task.name for task in measured.tasks]
    for number in range(tasks):
        original = names[number % len(names)]
        (task,) = (one for one in measured.tasks if one.name == original)
        (version,) = (one for one in measured.versions if one.task == original)
        name = TaskName(f"task-{number:03}")
        slo = replace(task.slo, latency_ms=draw.choice(SLOS_MS))
        variants = (replace(v, task=name) for v in measured.variants if v.task == original)
        profiles = (replace(p, task=name) for p in measured.profiles if p.task == original)
        catalog.register(
            Registration(
                task=replace(task, name=name, slo=slo),
                version=replace(version, task=name),
                variants=tuple(variants),
                profiles=tuple(profiles),
                device_kinds=measured.device_kinds,
            )
        )


def register_equal(state: Path, seed: int) -> None:
    """So many tasks, each with a model of its own that waits while it loads."""
    settings = load_settings(state_dir=state, workers=WORKERS)
    (kind,) = machine_kinds(settings)
    store, draw = FileArtifactStore(settings.artifacts_dir), random.Random(seed)
    with closing(open_catalog(settings.catalog_url)) as catalog:
        for number in range(TASKS):
            load_s = math.exp(draw.uniform(*map(math.log, EQUAL_LOADS_S)))
            name = f"task-{number:03}"
            file = state / "model.txt"
            file.write_text(name)
            artifact = store.put(file)
            task = Task(
                name=TaskName(name),
                inputs=(TensorSpec(name="features", dtype="float32", shape=(64,)),),
                outputs=(TensorSpec(name="scores", dtype="float32", shape=(10,)),),
                slo=Slo(latency_ms=draw.choice(SLOS_MS)),
            )
            variant = Variant(
                task=task.name, name=VariantName("waits-v1-echo-fp32"), model=ModelName("waits"),
                version=1, runtime="echo", precision=Precision.FP32, artifact=artifact,
                size_bytes=len(name), accuracy=0.9, accuracy_rows=100,
                options={"latency_ms": f"{EQUAL_MS:g}", "load_s": f"{load_s:.6f}"},
            )  # fmt: skip
            points = (
                LatencyPoint(batch_size=1, p50_ms=EQUAL_MS, p95_ms=EQUAL_MS, p99_ms=EQUAL_MS),
            )
            profile = Profile(
                task=task.name, variant=variant.name, device_kind=kind.name, points=points,
                memory_mib=EQUAL_MIB, load_s=load_s, host=host_of(variant),
                measured_at=timestamp(),
            )  # fmt: skip
            version = ModelVersion(
                task=task.name, model=variant.model, version=1, stage=Stage.LIVE, source=artifact
            )
            catalog.register(
                Registration(
                    task=task, version=version, variants=(variant,), profiles=(profile,),
                    device_kinds=(kind,),
                )
            )  # fmt: skip
        file.unlink()


def prepare(state: Path, seed: int, *, equal: bool) -> None:
    """A state directory with the 200 tasks, whole or not at all."""
    with tempfile.TemporaryDirectory(dir=state.parent) as folder:
        originals, made = Path(folder) / "originals", Path(folder) / "state"
        if equal:
            made.mkdir()
            register_equal(made, seed)
        else:
            measured_and_copied(originals, made, Path(folder), seed)
        shutil.rmtree(state, ignore_errors=True)
        made.rename(state)


def measured_and_copied(originals: Path, made: Path, folder: Path, seed: int) -> None:
    """Measure each classifier once, and give its profile to all tasks that have it."""
    register_originals(originals, folder)
    shutil.copytree(originals / "artifacts", made / "artifacts")
    with (
        closing(open_catalog(f"sqlite:///{originals / 'catalog.db'}")) as measured,
        closing(open_catalog(f"sqlite:///{made / 'catalog.db'}")) as catalog,
    ):
        register_copies(measured.snapshot(), catalog, seed)


# -- the queries -----------------------------------------------------------------------------------


def drawn(
    seconds: float, qps: float, moves: int, seed: int, tasks: int = TASKS
) -> tuple[list[Query], list[tuple[int, ...]]]:
    """A Poisson process over tasks by Zipf. The head changes places with others at each move.

    Returns:
        The queries, and the tasks by popularity in each period.
    """
    draw = random.Random(seed)
    ranks = list(range(tasks))
    draw.shuffle(ranks)
    weights = [rank**-EXPONENT for rank in range(1, tasks + 1)]
    found: list[Query] = []
    order = [tuple(ranks)]
    at_s, moved = 0.0, 0
    while (at_s := at_s + draw.expovariate(qps)) < seconds:
        if at_s > (moved + 1) * seconds / (moves + 1):
            moved += 1
            for here, there in zip(range(HEAD), draw.sample(range(HEAD, tasks), HEAD), strict=True):
                ranks[here], ranks[there] = ranks[there], ranks[here]
            order.append(tuple(ranks))
        found.append(Query(round(at_s, 6), draw.choices(ranks, weights)[0]))
    return found, order


def as_caches(
    known: CatalogSnapshot,
    memory_mib: float,
    queries: Sequence[Query],
    order: Sequence[tuple[int, ...]],
    seconds: float,
) -> dict[str, float]:
    """Seconds of loading by rule, if loads took no time and nothing but queries loaded."""
    from tests.bench.planning.cache_workloads import STEPS, Workload, zipf
    from tests.bench.planning.eviction import COLUMNS, row

    shares, step_s = zipf(TASKS, EXPONENT), seconds / STEPS
    rates = np.zeros((STEPS, TASKS))
    for step in range(STEPS):
        period = min(int(step * len(order) / STEPS), len(order) - 1)
        rates[step, list(order[period])] = shares * len(queries) / seconds
    profiles = {profile.task: profile for profile in known.profiles}
    of_task = [profiles[TaskName(f"task-{number:03}")] for number in range(TASKS)]
    load = Workload(
        arrival_s=[one.at_s for one in queries],
        variant=[one.task for one in queries],
        load_s=[profile.load_s for profile in of_task],
        memory_mib=[profile.memory_mib for profile in of_task],
        rates=rates,
        step_s=step_s,
    )
    return row(load, WORKERS * memory_mib, WORKERS, "least worth", COLUMNS, own_books=True)


# -- what happens ----------------------------------------------------------------------------------


class Outcome(NamedTuple):
    loads: int
    profiled_s: float
    """What the loads take by the profiles."""
    took_s: float | None
    """What they took; None where nothing was loaded for real."""
    in_time: int
    cold: int
    others: Mapping[str, int]
    """Errors of another kind, and late answers."""


def lived(
    state: Path, rule: str, memory_mib: float, queries: Sequence[Query]
) -> tuple[Outcome, Counter[str]]:
    """What happened, and what had become of the variants of refused queries."""
    rows = [0.5] * 64
    asked = [Asked(one.at_s, {"task": f"task-{one.task:03}", "inputs": [rows]}) for one in queries]
    with (
        deployed(state, workers=WORKERS, worker_memory_mib=memory_mib, eviction=rule) as running,
        Sightings(running) as seen,
    ):
        outcome, told = played(running, asked)
    with closing(open_catalog(f"sqlite:///{state / 'catalog.db'}")) as catalog:
        unloaded = unloaded_by_plans(catalog)
    refused = [one for one in zip(asked, told.told, strict=True) if code_of(one[1]) == "COLD"]
    whys = (
        why_cold(str(query.body["task"]), told.began_s + query.at_s, answer, seen.seen, unloaded)
        for query, answer in refused
    )
    return outcome, Counter(whys)


class Sightings:
    """What workers hold, looked at all the time."""

    EVERY_S = 0.2

    def __init__(self, running: Deployment) -> None:
        self._running = running
        self.seen: list[tuple[float, dict[tuple[str, str], str]]] = []
        """Unix time, and the state of each task's variant by worker."""
        self._ended = Event()
        self._thread = Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Sightings":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(self.EVERY_S):
            at_s = time.time()
            with suppress(OSError, AssertionError):
                held = {
                    (str(one["task"]), str(worker["worker"])): str(one["state"])
                    for worker in self._running.workers()
                    for one in worker["replicas"]
                }
                self.seen.append((at_s, held))


def unloaded_by_plans(catalog: Catalog) -> dict[tuple[str, str], list[float]]:
    """When the control loop had a task's variant unloaded, in Unix time, by task and worker."""
    found: dict[tuple[str, str], list[float]] = {}
    for tick in catalog.ticks(1_000):
        for one in tick.body["actions"]:
            if one["action"] == "unload":
                at_s = datetime.fromisoformat(tick.at).timestamp()
                found.setdefault((one["task"], one["worker"]), []).append(at_s)
    return found


def why_cold(
    task: str,
    at_s: float,
    answer: Told,
    seen: Sequence[tuple[float, Mapping[tuple[str, str], str]]],
    unloaded: Mapping[tuple[str, str], Sequence[float]],
) -> str:
    """What had become of the variant before a query came that was refused."""
    before = [held for seen_s, held in seen if seen_s <= at_s]
    states = [{w: state for (t, w), state in held.items() if t == task} for held in before]
    said = str(answer.body.get("error", ""))
    turned_away = "; the load was refused" if "began" not in said and "begun" not in said else ""
    if not states or not any("ready" in one.values() for one in states):
        loads = bool(states) and "loading" in states[-1].values()
        return "being loaded for the first time" if loads else f"never there{turned_away}"
    if "loading" in states[-1].values():
        return "being loaded again"
    last = next(i for i in reversed(range(len(states))) if "ready" in states[i].values())
    if last == len(states) - 1:
        return "seen there a moment before"
    gone_s = [s for s, _ in seen if s <= at_s][last]
    workers = [worker for worker, state in states[last].items() if state == "ready"]
    by_plan = any(
        gone_s - 1.0 <= when <= gone_s + 1.5
        for worker in workers
        for when in unloaded.get((task, worker), ())
    )
    return f"left {'by a plan' if by_plan else 'for a query'}{turned_away}"


class Answers(NamedTuple):
    began_s: float
    """Unix time of the trace's beginning."""
    told: list[Told]


def played(running: Deployment, queries: Sequence[Asked]) -> tuple[Outcome, Answers]:
    """What becomes of queries once an installation has settled."""
    time.sleep(SETTLE_S)
    before = loading(running)
    began_s = time.time() + 0.1  # as `play` begins
    told = asyncio.run(play(running.port, queries))
    time.sleep(REPORTED_S)
    loads, took_s, profiled_s = (
        now - then for now, then in zip(loading(running), before, strict=True)
    )
    codes = Counter(map(code_of, told))
    outcome = Outcome(
        loads=round(loads),
        profiled_s=profiled_s,
        took_s=took_s,
        in_time=codes.pop("in time", 0),
        cold=codes.pop("COLD", 0),
        others=codes,
    )
    return outcome, Answers(began_s, told)


def code_of(told: Told) -> str:
    if told.status == 200:
        met = told.body.get("parameters", told.body)["slo_met"]
        return "in time" if met else "late"
    return str(told.body.get("code", told.status))


def loading(running: Deployment) -> tuple[float, float, float]:
    """Loads so far, the seconds that they took, and those that profiles say."""
    metrics = running.request("GET", "/metrics").body.decode()
    sums = [0.0, 0.0, 0.0]
    for line in metrics.splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith("modelless_worker_loads_total"):
            sums[0] += float(value)
        elif name.startswith("modelless_worker_load_seconds_total"):
            sums[1 if 'by="clock"' in name else 2] += float(value)
    return sums[0], sums[1], sums[2]


def simulated(
    folder: Path, rule: str, queries: Sequence[Query], slos_ms: Sequence[float]
) -> Outcome:
    trace = folder / "trace.csv"
    lines = ["arrival_s,task,latency_slo_ms,min_accuracy,max_cost_usd_per_1k"]
    lines += [f"{one.at_s},task-{one.task:03},{slos_ms[one.task]:g},," for one in queries]
    trace.write_text("\n".join([*lines, ""]))
    files = ["--catalog", str(folder / "catalog.csv"), "--devices", str(folder / "devices.csv")]
    ran = subprocess.run(
        [*CLI, "simulate", *files, "--trace", str(trace), "--eviction", rule, "--json",
         "--fixed-fleet", "--tick-s", "1"],
        stdout=subprocess.PIPE,
        check=True,
    )  # fmt: skip
    found = json.loads(ran.stdout)
    return Outcome(
        loads=found["loads"],
        profiled_s=found["load_s_total"],
        took_s=None,
        in_time=found["in_time"],
        cold=found["rejected"],
        others={"late": found["late"]} if found["late"] else {},
    )


def export(folder: Path, known: CatalogSnapshot, memory_mib: float) -> None:
    """The files that ``modelless export`` would write, without starting anything."""
    variants = [
        {
            "task": one.task, "name": one.name, "stage": "live", "accuracy": one.accuracy,
            "model_version": one.model_version,
        }
        for one in known.variants
    ]  # fmt: skip
    kinds = [
        {**asdict(one), "memory_mib": memory_mib, "count": WORKERS} for one in known.device_kinds
    ]
    rows = catalog_rows(variants, [asdict(profile) for profile in known.profiles])
    asked = [{"device_kind": kind["name"], "asked": WORKERS} for kind in kinds]
    for name, table in {"catalog": rows, "devices": device_rows(kinds, asked)}.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, table[0])
            writer.writeheader()
            writer.writerows(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.residency")
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--qps", type=float, default=10.0)
    parser.add_argument("--moves", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rules", default=",".join(RULES))
    parser.add_argument("--simulated", action="store_true", help="Start nothing.")
    parser.add_argument("--cache", action="store_true", help="Play it as pure caches.")
    parser.add_argument("--why", action="store_true", help="Say what refused queries had met.")
    parser.add_argument("--equal", action="store_true", help="Models of one size, that wait.")
    parser.add_argument("--state", type=Path, help="Keep what was registered there, or use it.")
    asked = parser.parse_args()
    queries, order = drawn(asked.seconds, asked.qps, asked.moves, asked.seed)
    with short_directory() as home:
        state = asked.state or home / "state"
        if not (state / "catalog.db").exists():
            prepare(state, asked.seed, equal=asked.equal)
        with closing(open_catalog(f"sqlite:///{state / 'catalog.db'}")) as catalog:
            known = catalog.snapshot()
        sizes = [profile.memory_mib for profile in known.profiles]
        memory_mib = HELD * sum(sizes) / len(sizes) / WORKERS
        slos_ms = [task.slo.latency_ms for task in known.tasks]
        print(
            f"{len(sizes)} models of {min(sizes):.1f} to {max(sizes):.1f} MiB, loads of "
            f"{1_000 * min(p.load_s for p in known.profiles):.0f} to "
            f"{1_000 * max(p.load_s for p in known.profiles):.0f} ms; {WORKERS} workers of "
            f"{memory_mib:.0f} MiB; {len(queries)} queries in {asked.seconds:g} s"
        )
        if asked.cache:
            found_s = as_caches(known, memory_mib, queries, order, asked.seconds)
            for rule, loading_s in found_s.items():
                part = loading_s / found_s["lru"]
                print(f"{rule}: {loading_s:.1f} s of loading, {part:.2f} of lru")
            return
        print(
            "| rule | loads | loading, s by profiles | s by the clock | in time | COLD | others |"
        )
        print("|---|--:|--:|--:|--:|--:|---|")
        for rule in asked.rules.split(","):
            whys: Counter[str] = Counter()
            if asked.simulated:
                export(home, known, memory_mib)
                found = simulated(home, rule, queries, slos_ms)
            else:
                copy = home / "s"
                shutil.copytree(state, copy, ignore=shutil.ignore_patterns("run"))
                found, whys = lived(copy, rule, memory_mib, queries)
                shutil.rmtree(copy)
            took = "" if found.took_s is None else f"{found.took_s:.1f}"
            others = ", ".join(f"{name} {count}" for name, count in sorted(found.others.items()))
            print(
                f"| {rule} | {found.loads} | {found.profiled_s:.1f} | {took} | {found.in_time} "
                f"| {found.cold} | {others} |",
                flush=True,
            )
            if asked.why:
                for why, count in whys.most_common():
                    print(f"  {rule}, COLD {count}: {why}", flush=True)


if __name__ == "__main__":
    main()
