"""Measuring beside a worker: ``python -m tests.bench.profiling.beside``.

``modelless up`` serves a convolutional network, and queries of one image come as a Poisson process,
each with a deadline of 30 ms: alone, and while the same network is measured as a cluster's node
does it, in a process at the niceness of ``NodeBench``, again and again. In turns. Prints how many
queries were in time, and what the profiles said that were measured alone and beside that load.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any

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
from workers.process.niceness import HURRIES_NOT, take_niceness

[MODEL] = [model for model in MODELS if model.name == "small"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.profiling.beside")
    parser.add_argument("--rates", type=float, nargs="+", default=[100.0, 350.0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure is not None:
        _measure(given.measure)
        return
    print(machine.describe())
    with TemporaryDirectory() as made, short_directory() as home:
        servers.register(home / "s", MODEL, export(MODEL, Path(made)))
        found: dict[str, list[Any]] = {
            "nothing": _profiles(home / "s", lambda: sleep(given.seconds))
        }
        with deployed(home / "s") as running:
            for rate in given.rates:
                job = Job(
                    port=running.port, connections=128, seconds=given.seconds, task=MODEL.name,
                    width=MODEL.width, decimals=4, within_ms=MODEL.slo_ms, slo_ms=MODEL.slo_ms,
                    shape=MODEL.shape, rate=rate,
                )  # fmt: skip
                found[f"{rate:g}/s"] = _in_turns(home / "s", job, given.turns)
    for load, profiles in found.items():
        print(f"beside {load}: {_words(profiles)}")


def _in_turns(state: Path, job: Job, turns: int) -> list[Any]:
    """The profiles that were measured beside the queries of a job."""
    alone: list[float] = []
    beside: list[float] = []
    found: list[Any] = []
    for _ in range(turns):
        alone.append(run(job).good_share)
        found += _profiles(state, lambda: beside.append(run(job).good_share))
    print(f"{job.rate:g}/s in time, alone {_shares(alone)}, beside {_shares(beside)}")
    return found


def _profiles(state: Path, meanwhile: Any) -> list[Any]:
    """What is measured again and again while something else is done."""
    command = [sys.executable, "-m", "tests.bench.profiling.beside", "--measure", str(state)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        meanwhile()
        child.terminate()
        return [json.loads(line) for line in child.stdout if line.endswith("\n")]


def _measure(state: Path) -> None:
    take_niceness(HURRIES_NOT)
    settings = load_settings(state_dir=state)
    store = FileArtifactStore(settings.artifacts_dir)
    with closing(open_catalog(settings.catalog_url)) as catalog:
        known = catalog.snapshot()
    variant = next(v for v in known.variants if "threads" not in v.options)
    print("begun", flush=True)
    with TemporaryDirectory() as work:
        while True:
            profile = measured(
                known.tasks[0], variant, machine_kinds(settings)[0], store, Path(work)
            )
            ms = [point.p50_ms for point in profile.points]
            print(json.dumps([ms[0], ms[-1], profile.beside_load]), flush=True)


def _shares(found: Sequence[float]) -> str:
    return f"{mean(found):.1%} ({', '.join(f'{share:.1%}' for share in found)})"


def _words(found: Sequence[Any]) -> str:
    if not found:
        return "no profile was ready in time"
    one, last = (median(profile[at] for profile in found) for at in (0, 1))
    marked = sum(profile[2] for profile in found)
    return f"{len(found)} profiles, {one:.2f} and {last:.2f} ms, {marked} marked"


if __name__ == "__main__":
    main()
