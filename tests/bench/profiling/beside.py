"""Measuring beside a worker: ``python -m tests.bench.profiling.beside``.

``modelless up`` serves a convolutional network, and queries of one image come as a Poisson process,
each with a deadline of 30 ms: alone, and while the same network is measured again and again in a
process as ``NodeBench`` is one, which computes only while a core is idle, or, for comparison, at a
niceness of 10 (``--policies idle nice``). In turns. Prints how many queries were in time, and what
the profiles said that were measured alone and beside that load, and how long each took.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import Any, TypeVar

from controlplane.machine import machine_kinds
from controlplane.profiling.remeasuring import measured
from controlplane.settings import load_settings
from tests.bench import machine
from tests.bench.peers import servers
from tests.bench.peers.models import MODELS, export
from tests.bench.serving.load import Job, run
from tests.integration.deployment import deployed, short_directory
from variants.artifacts.store import FileArtifactStore
from variants.catalog.sql import open_catalog
from workers.process.niceness import HURRIES_NOT, only_while_idle, take_niceness

Done = TypeVar("Done")
POLICIES = ("idle", "nice")
[MODEL] = [model for model in MODELS if model.name == "small"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.profiling.beside")
    parser.add_argument("--rates", type=float, nargs="+", default=[100.0, 350.0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=["idle"])
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure is not None:
        _measure(given.measure, given.policies[0])
        return
    print(machine.describe())
    with TemporaryDirectory() as made, short_directory() as home:
        servers.register(home / "s", MODEL, export(MODEL, Path(made)))
        found: dict[str, list[Any]] = {
            f"nothing, {policy}": _profiles(home / "s", policy, partial(sleep, given.seconds))[0]
            for policy in given.policies
        }
        with deployed(home / "s") as running:
            for rate in given.rates:
                job = Job(
                    port=running.port, connections=128, seconds=given.seconds, task=MODEL.name,
                    width=MODEL.width, decimals=4, within_ms=MODEL.slo_ms, slo_ms=MODEL.slo_ms,
                    shape=MODEL.shape, rate=rate,
                )  # fmt: skip
                for policy, profiles in _in_turns(
                    home / "s", job, given.turns, given.policies
                ).items():
                    found[f"{rate:g}/s, {policy}"] = profiles
    for load, profiles in found.items():
        print(f"beside {load}: {_words(profiles)}")


def _in_turns(state: Path, job: Job, turns: int, policies: Sequence[str]) -> dict[str, list[Any]]:
    """By policy, the profiles that were measured beside the queries of a job."""
    alone: list[float] = []
    beside: dict[str, list[float]] = {policy: [] for policy in policies}
    found: dict[str, list[Any]] = {policy: [] for policy in policies}
    for _ in range(turns):
        alone.append(run(job).good_share)
        for policy in policies:
            profiles, outcome = _profiles(state, policy, partial(run, job))
            found[policy] += profiles
            beside[policy].append(outcome.good_share)
    print(f"{job.rate:g}/s in time, alone {_shares(alone)}")
    for policy, shares in beside.items():
        print(f"{job.rate:g}/s in time, beside measuring, {policy}: {_shares(shares)}")
    return found


def _profiles(state: Path, policy: str, meanwhile: Callable[[], Done]) -> tuple[list[Any], Done]:
    """What is measured again and again while something else is done, and what comes of that."""
    command = [sys.executable, "-m", "tests.bench.profiling.beside", "--measure", str(state)]
    command += ["--policies", policy]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        done = meanwhile()
        child.terminate()
        return [json.loads(line) for line in child.stdout if line.endswith("\n")], done


def _measure(state: Path, policy: str) -> None:
    if policy == "idle":
        only_while_idle()
    else:
        take_niceness(HURRIES_NOT)
    settings = load_settings(state_dir=state)
    store = FileArtifactStore(settings.artifacts_dir)
    with closing(open_catalog(settings.catalog_url)) as catalog:
        known = catalog.snapshot()
    variant = next(v for v in known.variants if "threads" not in v.options)
    print("begun", flush=True)
    with TemporaryDirectory() as work:
        while True:
            began_s = perf_counter()
            profile = measured(
                known.tasks[0], variant, machine_kinds(settings)[0], store, Path(work)
            )
            ms = [point.p50_ms for point in profile.points]
            took_s = perf_counter() - began_s
            print(json.dumps([ms[0], ms[-1], profile.beside_load, took_s]), flush=True)


def _shares(found: Sequence[float]) -> str:
    return f"{mean(found):.1%} ({', '.join(f'{share:.1%}' for share in found)})"


def _words(found: Sequence[Any]) -> str:
    if not found:
        return "no profile was ready in time"
    one, last, took_s = (median(profile[at] for profile in found) for at in (0, 1, 3))
    marked = sum(profile[2] for profile in found)
    return (
        f"{len(found)} profiles, {one:.2f} and {last:.2f} ms, {marked} marked, {took_s:.1f} s each"
    )


if __name__ == "__main__":
    main()
