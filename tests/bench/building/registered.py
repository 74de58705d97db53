"""What becomes of models that teams bring along: registered, asked, and their memory counted.

``python -m tests.bench.building.registered`` starts an installation of its own for each model of
``tests/bench/building/collection.py``, registers it as a client does, asks every variant for a few
rows, and prints a line of a table. Small models by default, to see whether all works; with
``--full`` in the sizes that they are known by, which takes an hour on two cores. ``--only`` names
some, ``--quick`` registers with ``--quick``.

A line has the size of the file; how long registering took; how many variants there are, and how
many kinds were left out; the furthest that an answer of ``onnx-fp32`` is from ONNX Runtime's own
with the file as it was handed in, as a share of the largest number; accuracy of fp32 and the least
of all variants; the median latency of one row of the quickest variant, by its profile and as a
query met it; and of the worker's memory what is reserved for all variants, and by how much the
process has grown (PSS) once each has run its largest batch.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import modelless
from tests.bench.building.collection import MODELS, Brought, make
from tests.bench.machine import Others, describe
from tests.integration.deployment import Deployment, deployed, short_directory

PATIENT_MS = 60_000.0
LOADED_S = 120.0
ASKED = 7
"""Queries of one row by which a latency is told."""
HEAD = (
    "| model | file, MiB | registered in, s | variants, left out | fp32 from ONNX Runtime"
    " | accuracy of fp32, least | 1 row by profile, as met, ms | reserved, grown by, MiB |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|"
)


def line(brought: Brought, home: Path, *, quick: bool) -> str:
    """Register a model in a new installation, and tell of it."""
    with deployed(home) as running, modelless.Client(f"http://127.0.0.1:{running.port}") as client:
        before_mib = worker_mib(running)
        begun_s = time.monotonic()
        options = {"measure": "sampled", "quick": quick} | dict(brought.options)
        found = client.register(brought.path, task="it", evaluation=brought.rows, **options)
        took_s = time.monotonic() - begun_s
        variants = _variants(running, found)
        wait_loaded(running, len(variants))
        differences, met_ms = [], []
        for task, variant in variants:
            rows = _as_long(brought.inputs, task)
            answers, run_ms = _asked(client, task, variant["name"], rows)
            if variant["name"].endswith("onnx-fp32"):
                differences.append(_difference(brought.path, rows, answers))
            met_ms.append((_profile(variant)["p50_ms"], run_ms))
        for task, variant in variants:
            _largest(client, task, variant, _as_long(brought.inputs, task))
        grown_mib = worker_mib(running) - before_mib
        reserved_mib = sum(worker["reserved_mib"] for worker in _workers(running))
    accuracies = [variant["accuracy"] for _, variant in variants]
    exact = [v["accuracy"] for _, v in variants if v["name"].endswith("onnx-fp32")]
    by_profile, met = min(met_ms)
    return (
        f"| {brought.name} | {brought.path.stat().st_size / 2**20:.1f} | {took_s:.0f}"
        f" | {len(variants)}, {len(found['skipped'])} | {max(differences):.1g}"
        f" | {min(exact):.1%}, {min(accuracies):.1%} | {by_profile:.3g}, {met:.3g}"
        f" | {reserved_mib:.0f}, {grown_mib:.0f} |"
    )


def worker_mib(running: Deployment) -> float:
    """Memory of the worker's process, shared pages by their part (PSS)."""
    lines = Path(f"/proc/{_workers(running)[0]['pid']}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1_024


def wait_loaded(running: Deployment, count: int) -> None:
    """
    Raises:
        TimeoutError: fewer variants are ready within two minutes.
    """
    until_s = time.monotonic() + LOADED_S
    while time.monotonic() < until_s:
        replicas = [each for worker in _workers(running) for each in worker["replicas"]]
        if sum(each["state"] == "ready" for each in replicas) >= count:
            return
        time.sleep(0.2)
    raise TimeoutError(f"not all of {count} variants are loaded after {LOADED_S:g} s")


def _variants(running: Deployment, found: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Each variant that was registered, with its task, which of several lengths is a bucket."""
    tasks = sorted({variant["task"] for variant in found["variants"]})
    return [
        (task, each)
        for task in tasks
        for each in running.get(f"/v1/tasks/{task}/variants")["variants"]
    ]


def _workers(running: Deployment) -> list[dict[str, Any]]:
    workers: list[dict[str, Any]] = running.get("/v1/workers")["workers"]
    return workers


def _profile(variant: dict[str, Any]) -> dict[str, Any]:
    (profile,) = variant["devices"]
    return dict(profile)


def _asked(
    client: modelless.Client, task: str, variant: str, inputs: dict[str, Any]
) -> tuple[Any, float]:
    """Answers to all rows, and the median time that a batch of one row ran, in ms."""
    one = {name: array[:1] for name, array in inputs.items()}
    times = [
        client.query(task, one, variant=variant, latency_ms=PATIENT_MS).run_ms for _ in range(ASKED)
    ]
    reply = client.query(task, inputs, variant=variant, latency_ms=PATIENT_MS, arrays=True)
    return reply.outputs, median(times)


def _largest(
    client: modelless.Client, task: str, variant: dict[str, Any], inputs: dict[str, Any]
) -> None:
    count = _profile(variant)["max_batch_size"]
    rows = {name: np.resize(array, (count, *array.shape[1:])) for name, array in inputs.items()}
    for _ in range(2):
        client.query(task, rows, variant=variant["name"], latency_ms=PATIENT_MS, arrays=True)


def _as_long(inputs: dict[str, Any], task: str) -> dict[str, Any]:
    """The rows as long as the task's, which is a bucket of one length, or as they are."""
    length = task.partition(".")[2]
    return {name: array[:, : int(length)] if length else array for name, array in inputs.items()}


def _difference(path: Path, inputs: dict[str, Any], outputs: Any) -> float:
    """The furthest that a number is from ONNX Runtime's own, by the largest of its output."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    found = zip(names, map(_numbers, session.run(None, inputs)), strict=True)
    right = {name: array for name, array in found if array.dtype.kind == "f"}
    named = outputs if isinstance(outputs, dict) else {next(iter(right)): outputs}
    return max(
        float(np.abs(np.asarray(named[name]) - array).max() / np.abs(array).max())
        for name, array in right.items()
    )


def _numbers(output: Any) -> Any:
    """An output as an array; scikit-learn's converter writes scores as a map for each row."""
    if isinstance(output, list):
        return np.array([list(row.values()) for row in output], np.float32)
    return output


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="in the sizes they are known by")
    parser.add_argument("--only", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--quick", action="store_true", help="register with --quick")
    chosen = parser.parse_args(arguments)
    print(describe(), HEAD, sep="\n\n", flush=True)
    with Others() as others:
        for name in chosen.only:
            with tempfile.TemporaryDirectory() as folder:
                brought = make(name, Path(folder), full=chosen.full)
                with short_directory() as home:
                    print(line(brought, home, quick=chosen.quick), flush=True)
    print(f"\nothers used {others.cores:.1f} cores meanwhile")


if __name__ == "__main__":
    main()
