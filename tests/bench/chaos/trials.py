"""Trials: load, a fault, and how long it takes until all is well again."""

import json
import os
import random
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import psutil

from tests.bench.chaos import models
from tests.bench.chaos.client import Job
from tests.bench.chaos.faults import Scene
from tests.bench.chaos.installation import Installation
from tests.bench.chaos.ledger import GRACE_S, Fault, Figures, read
from tests.bench.chaos.starved import Starved

SETTLE_S = 4.0
"""Load before the fault: the first plan for it is there, and batches are learned."""
AFTER_S = 8.0
"""Load after the fault has passed, at least."""
MOST_S = 120.0
"""What is not well again after this is told as such."""
LOOK_S = 0.2


def trial(
    on: Installation, name: str, fault: Callable[[Scene], None], found: Figures,
    *, seed: int, first: int, qps: float, hold_s: float,
) -> None:  # fmt: skip
    """Do one fault to an installation under load, and count what became of the queries.

    ``first`` is the first query's number: what was asked in another trial is not asked again.
    """
    scene = Scene(on, random.Random(seed), hold_s)
    ledger = on.home / "ledger.jsonl"
    ledger.unlink(missing_ok=True)
    pinned = [("first", "small-v1-uneven-fp32")] if name in ("artifact damaged",) else None
    job = Job(
        port=on.shape.port, ledger=str(ledger), seconds=MOST_S + hold_s * 3, qps=qps, seed=seed,
        first=first,
        tasks=list(models.TASKS), floors=models.FLOORS, latencies_ms=models.LATENCIES_MS,
        pinned=pinned,
    )  # fmt: skip
    client = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.chaos.client", json.dumps(asdict(job))]
    )
    starved = Starved(lambda: on.replicas("modelless-gateway")).start()
    ends = Ends(on.replicas("modelless-gateway"))
    try:
        time.sleep(SETTLE_S)
        seen = max((event["seq"] for event in _events(on)), default=0)
        begin_s = time.monotonic()
        doing = threading.Thread(target=_do, args=(fault, scene), daemon=True)
        doing.start()
        reported_s: float | None = None
        while doing.is_alive():
            if reported_s is None and _lost(on, seen):
                reported_s = time.monotonic() - begin_s
            doing.join(LOOK_S)
        end_s = time.monotonic()
        back_s: float | None = None
        missing = "not looked at"
        while time.monotonic() < end_s + MOST_S:
            if reported_s is None and _lost(on, seen):
                reported_s = time.monotonic() - begin_s
            missing = on.missing()
            if not missing:
                back_s = time.monotonic() - end_s
                break
            time.sleep(LOOK_S)
        time.sleep(max(0.0, end_s + AFTER_S - time.monotonic()))
    finally:
        client.terminate()
        client.wait()
        starved.stop()
    if missing:
        found.notes[f"not whole after {MOST_S:g} s: {missing}"] += 1
    found.notes.update(scene.notes)
    cut_s = tuple(ends.at_s) if scene.cuts else ()
    passed = Fault(begin_s=begin_s, end_s=end_s, cut_s=cut_s, harm=scene.harm)
    found.add(
        (
            replace(entry, starved_s=starved.within(entry.sent_s, entry.ended_s))
            if entry.beyond_s > GRACE_S
            else entry
            for entry in read(ledger)
        ),
        passed,
    )
    found.back_s.append(back_s)
    found.reported_s.append(reported_s)


class Ends:
    """When processes end."""

    def __init__(self, processes: list[psutil.Process]) -> None:
        self.at_s: list[float] = []
        for process in processes:
            threading.Thread(
                target=self._see, args=(os.pidfd_open(process.pid),), daemon=True
            ).start()

    def _see(self, file: int) -> None:
        select.select([file], [], [])
        self.at_s.append(time.monotonic())
        os.close(file)


def _do(fault: Callable[[Scene], None], scene: Scene) -> None:
    try:
        fault(scene)
    except Exception as error:
        scene.notes.append(f"the fault could not be made: {error!r}")


def _events(on: Installation) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = on.get("/v1/events?limit=50").get("events", [])
    return found


def _lost(on: Installation, seen: int) -> bool:
    """Whether the product has told since that a worker was lost."""
    events = on.get(f"/v1/events?limit=50&after={seen}").get("events", [])
    return any(event["kind"] == "worker_lost" for event in events)
