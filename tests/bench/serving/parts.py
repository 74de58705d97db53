"""Where the time of a query goes, piece by piece, and how long a choice takes.

Runs in this process, on the catalog that a deployment serves.
"""

import gc
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from statistics import median

import numpy as np
import uvloop

from controlplane.gateway.query.parsing import ParsedQuery, parse_v1
from controlplane.gateway.query.replies import ReplyMetadata, encode_v1
from controlplane.settings import Settings
from planner.selection.select import select
from planner.selection.snapshot import build_snapshot
from planner.types import Choice, Snapshot, WorkerView
from tests.bench.figures import Figure, middle
from tests.bench.planning.select import NOW_MS, queries, timed
from tests.bench.serving.channel import Measurement, measure
from tests.bench.serving.load import Job, requests, summary
from variants.catalog.sql import open_catalog
from variants.types import CatalogSnapshot, Prefer, TaskName, WorkerId

TASK = TaskName("digits")
SELECT_US = 50.0
"""What a choice may take at p99."""


def catalog_of(settings: Settings) -> CatalogSnapshot:
    with closing(open_catalog(settings.catalog_url)) as catalog:
        return catalog.snapshot()


def snapshot_of(known: CatalogSnapshot, settings: Settings) -> Snapshot:
    """As a gateway sees it once everything is loaded on one worker."""
    worker = WorkerView(id=WorkerId("w0"), device_kind=settings.kinds[0].name)
    return build_snapshot(known, [(worker, frozenset(v.key for v in known.variants))])


def choices(settings: Settings, rounds: int) -> list[Figure]:
    """p50 and p99 of a choice, accepted and refused ones together."""
    known = catalog_of(settings)
    view = snapshot_of(known, settings)
    figures = []
    for prefer in Prefer:
        asked = [query._replace(task=TASK) for query in queries(prefer)]
        with _calm():
            taken = [timed(view, asked) for _ in range(rounds)]
        each = [summary(accepted + refused) for accepted, refused in taken]
        refusals = len(taken[0][1])
        note = f"{len(known.variants)} variants, {refusals} of {len(asked)} queries refused"
        figures += [
            middle(f"prefer {prefer.value}, p50", [found["p50"] for found in each], "µs"),
            middle(
                f"prefer {prefer.value}, p99",
                [found["p99"] for found in each],
                "µs",
                at_most=SELECT_US,
                note=note,
            ),
        ]
    return figures


def pieces(settings: Settings) -> list[Figure]:
    """Processor time of what the gateway does with one query between its two sockets."""
    known = catalog_of(settings)
    view = snapshot_of(known, settings)
    tasks = {task.name: task for task in known.tasks}
    body = requests(Job(port=0, connections=1, seconds=0))[0].partition(b"\r\n\r\n")[2]

    def parse() -> ParsedQuery:
        return parse_v1(body, tasks, NOW_MS, 7)

    parsed = parse()
    found = select(view, parsed.query, NOW_MS)
    assert isinstance(found, Choice)
    chosen = found.candidate
    metadata = ReplyMetadata(chosen.variant, chosen.model_version, found.worker.id, 1, 0.02, 0.01,
                chosen.accuracy, 1e-7, True)  # fmt: skip
    scores = np.random.default_rng(0).dirichlet(np.ones(10), 1).astype(np.float32)
    return [
        _piece("reading the body", parse),
        _piece("choosing", lambda: select(view, parsed.query, NOW_MS)),
        _piece("writing the reply", lambda: encode_v1(parsed.task, [scores], metadata)),
    ]


def wake_ups(seconds: float) -> float:
    """Median µs for one byte to a process on another core and back: two wake-ups and no work.

    An idle core of a virtual machine wakes up slowly, so this is what most of a lone query is.
    """
    cores = sorted(os.sched_getaffinity(0))
    ours, theirs = socket.socketpair()
    echo = subprocess.Popen(
        [sys.executable, "-c", _ECHO, str(theirs.fileno()), str(cores[-1])],
        pass_fds=[theirs.fileno()],
    )
    theirs.close()
    times_us = []
    os.sched_setaffinity(0, cores[:1])
    with ours:
        end_s = time.perf_counter() + seconds
        while time.perf_counter() < end_s:
            begin_ns = time.perf_counter_ns()
            ours.send(b"x")
            ours.recv(1)
            times_us.append((time.perf_counter_ns() - begin_ns) / 1_000)
    os.sched_setaffinity(0, cores)
    echo.wait(10)
    return median(times_us)


_ECHO = """
import os, socket, sys
os.sched_setaffinity(0, [int(sys.argv[2])])
peer = socket.socket(fileno=int(sys.argv[1]))
while data := peer.recv(1):
    peer.send(data)
"""


def channel(seconds: float) -> Measurement:
    """One query at a time over the tensor channel to a worker process of its own."""
    found: list[Measurement] = uvloop.run(measure([1], seconds))
    return found[0]


def _piece(name: str, call: Callable[[], object]) -> Figure:
    """The median of many calls, each timed in a bunch of ten."""
    bunches = []
    with _calm():
        for _ in range(1_000):
            begin_ns = time.perf_counter_ns()
            for _ in range(10):
                call()
            bunches.append((time.perf_counter_ns() - begin_ns) / 10_000)
    return Figure(name=name, value=median(bunches), unit="µs")


@contextmanager
def _calm() -> Iterator[None]:
    """No garbage collection, as between two of the gateway's."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
