"""What is done to an installation: each fault a function that returns when it has passed.

A fault is told when to pass by ``Scene.hold_s``; what it breaks and nobody mends, it mends itself
when that time is over, as an operator would.
"""

import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field

import psutil

from tests.bench.chaos import models
from tests.bench.chaos.installation import Installation
from tests.disks import fill

LOCKED_S = 30.0
"""Long enough for a worker to be started, and for its loads."""
STOPPED_S, RUNNING_S = 0.045, 0.005
"""Of a worker that is slowed ten times."""


@dataclass(slots=True)
class Scene:
    """One trial: what a fault does, and when it did it."""

    on: Installation
    draw: random.Random
    hold_s: float
    cuts: bool = False
    """Whether gateways end by it: what they have in flight may be reset."""
    notes: list[str] = field(default_factory=list)
    harm: str = "REPLICA_LOST"
    """The code of queries that were sent to what is not there, or does not run."""

    def hold(self) -> None:
        time.sleep(self.hold_s)

    def hold_for(self, what: str, until_s: float) -> None:
        """Wait, and note how long it takes until all is well again meanwhile."""
        begin_s = time.monotonic()
        time.sleep(1.0)
        while time.monotonic() < until_s:
            if not self.on.missing():
                self.notes.append(f"{what}, after {time.monotonic() - begin_s:.1f} s")
                break
            time.sleep(0.2)
        else:
            self.notes.append(f"not {what}")
        time.sleep(max(0.0, until_s - time.monotonic()))

    def victim(self) -> int:
        """The process of a worker that queries go to: the busiest, or any in every third trial."""
        workers = self.on.workers()
        busiest = max(workers, key=lambda worker: float(worker["busy_ratio"]))
        return int((self.draw.choice(workers) if self.draw.random() < 1 / 3 else busiest)["pid"])


def worker(scene: Scene) -> None:
    """A worker is killed."""
    os.kill(scene.victim(), signal.SIGKILL)


def gateway(scene: Scene) -> None:
    """A gateway is killed."""
    scene.cuts = True
    scene.draw.choice(scene.on.replicas("modelless-gateway")).kill()


def controller(scene: Scene) -> None:
    """The control loop is killed."""
    for process in scene.on.replicas("modelless-controller"):
        process.kill()


def planning(scene: Scene) -> None:
    """The control loop is killed at some moment in which it applies a plan: a worker fewer is
    wanted, and then again one more."""
    count = scene.on.shape.workers
    for wanted in (count - 1, count):
        scene.notes.append(_write(scene.on, wanted))
        time.sleep(scene.draw.uniform(0.0, 2.0))
        controller(scene)
        scene.hold()


def serve(scene: Scene) -> None:
    """Ray Serve's own controller is killed."""
    for process in scene.on.serve_controller():
        process.kill()


def raylet(scene: Scene) -> None:
    """A Ray node with workers ends; after a while it is started again."""
    raylets = scene.on.raylets()
    raylets.pop("127.0.0.1")
    parents = [psutil.Process(w["pid"]).ppid() for w in scene.on.workers()]
    where = scene.draw.choice([at for at, one in raylets.items() if one.pid in parents])
    scene.notes.append(f"workers taken along: {parents.count(raylets[where].pid)}")
    raylets[where].kill()
    scene.hold()
    scene.on.node(int(where.rpartition(".")[2]))


def head(scene: Scene) -> None:
    """Ray's head ends, with the gateways and the control loop; all is started again."""
    scene.cuts = True
    for process in scene.on.control_store():
        process.kill()
    scene.on.raylets()["127.0.0.1"].kill()
    scene.hold()
    scene.on.kill_all()
    begin_s = time.monotonic()
    scene.on.start()
    scene.notes.append(f"started again in {time.monotonic() - begin_s:.0f} s")


def redis_stopped(scene: Scene) -> None:
    """The live state does not answer: its process is stopped."""
    assert scene.on.valkey.pid is not None
    os.kill(scene.on.valkey.pid, signal.SIGSTOP)
    scene.hold()
    os.kill(scene.on.valkey.pid, signal.SIGCONT)


def redis_killed(scene: Scene) -> None:
    """The live state is killed, and comes back empty."""
    assert scene.on.valkey.pid is not None
    os.kill(scene.on.valkey.pid, signal.SIGKILL)
    scene.hold()
    scene.on.valkey.start()


def database(scene: Scene) -> None:
    """The database is locked by another process."""
    with closing(sqlite3.connect(scene.on.state / "catalog.db", timeout=10)) as connection:
        connection.isolation_level = None
        connection.execute("BEGIN EXCLUSIVE")
        begin_s = time.monotonic()
        scene.notes.append(_write(scene.on, scene.on.shape.workers))
        time.sleep(max(0.0, begin_s + scene.hold_s - time.monotonic()))
        connection.execute("ROLLBACK")


def database_and_worker(scene: Scene) -> None:
    """The database is locked by another process, and a worker is killed meanwhile."""
    with closing(sqlite3.connect(scene.on.state / "catalog.db", timeout=10)) as connection:
        connection.isolation_level = None
        connection.execute("BEGIN EXCLUSIVE")
        begin_s = time.monotonic()
        worker(scene)
        scene.hold_for("whole while it is locked", until_s=begin_s + max(scene.hold_s, LOCKED_S))
        connection.execute("ROLLBACK")


def slowed(scene: Scene) -> None:
    """A worker gets a tenth of its time."""
    scene.harm = "DEADLINE_EXCEEDED"
    pid, end_s = scene.victim(), time.monotonic() + scene.hold_s
    with suppress(ProcessLookupError):
        while time.monotonic() < end_s:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(STOPPED_S)
            os.kill(pid, signal.SIGCONT)
            time.sleep(RUNNING_S)


def paused(scene: Scene) -> None:
    """A worker is stopped, and goes on later unless it was replaced."""
    scene.harm = "DEADLINE_EXCEEDED"
    pid = scene.victim()
    os.kill(pid, signal.SIGSTOP)
    scene.hold()
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
        scene.notes.append("was not replaced")


def artifact(scene: Scene) -> None:
    """An artifact is damaged, and a worker that loads it anew meets that."""
    path = models.artifact_of(scene.on.state, "first", "small")
    content = path.read_bytes()
    models.restore(path, bytes([content[0] ^ 1]) + content[1:])
    try:
        worker(scene)
        scene.hold()
    finally:
        models.restore(path, content)


def nan(scene: Scene) -> None:
    """A model gives NaN for everything; it is put in order, and its quarantine is lifted."""
    sick = scene.on.state / models.SICK
    sick.touch()
    scene.hold()
    sick.unlink()
    for task, variant in {
        (row["task"], row["variant"])
        for row in scene.on.get("/v1/quarantine").get("quarantine", [])
    }:
        scene.on.request("DELETE", f"/v1/quarantine/{task}/{variant}")


def disk(scene: Scene) -> None:
    """The disk of the state directory is full, and a worker and the control loop are killed."""
    filler = fill(scene.on.state)
    try:
        worker(scene)
        time.sleep(scene.hold_s / 2)
        controller(scene)
        time.sleep(scene.hold_s / 2)
    finally:
        filler.unlink()


def _write(on: Installation, count: int) -> str:
    """Ask for so many workers; the status and code of the answer."""
    try:
        status, told = on.request("PUT", "/v1/inventory/cpu-1", {"count": count}, timeout_s=60)
    except OSError as error:
        return f"write: {type(error).__name__}"
    return f"write: {status} {told.get('code', '')}".strip()


FAULTS: Mapping[str, Callable[[Scene], None]] = {
    "worker killed": worker,
    "gateway killed": gateway,
    "control loop killed": controller,
    "control loop killed while it applies a plan": planning,
    "Ray Serve's controller killed": serve,
    "raylet killed": raylet,
    "live state stopped": redis_stopped,
    "live state killed": redis_killed,
    "database locked": database,
    "worker killed while the database is locked": database_and_worker,
    "worker slowed ten times": slowed,
    "worker paused": paused,
    "artifact damaged": artifact,
    "model gives NaN": nan,
    "disk full": disk,
    "head killed": head,
}
NEEDS_NODES = frozenset({"raylet killed", "head killed"})
"""Faults that one machine with a Ray of its own cannot have: there the supervisor ends with Ray."""
