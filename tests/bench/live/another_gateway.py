"""What starting another gateway takes from queries: ``python -m tests.bench.live.another_gateway``.

``modelless up`` with one gateway serves a model that takes microseconds, and queries of 64 numbers
come as a Poisson process, each with a deadline of 20 ms. In the midst of it one more gateway is
asked for, as ``modelless upgrade`` does, and later it goes again. What counts is how many queries
were in time by the client's clock before, while it started and after it; and how much processor
the new process had used when it took its first connection, by what its threads yielded to.
``--beside FOLDER`` measures another checkout in turns, which neighbours of the machine then meet
alike, and may be given several times.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event, Thread

import psutil
import uvloop

from controlplane.live_state import opened
from controlplane.settings import load_settings
from tests.bench import machine
from tests.bench.peers import servers
from tests.bench.peers.models import MODELS, export
from tests.bench.peers.shares import sources
from tests.bench.serving.load import WARM_UP_S, Connection, Job, OpenLoop
from tests.integration.deployment import Deployment, deployed, short_directory, title

ROOT = Path(__file__).parents[3]
TINY = MODELS[0]
CONNECTIONS = 128
SETTLE_S, BEFORE_S, AFTER_S = 2.0, 3.0, 2.0
IN_ALL_S = 12.0
"""From when it is asked for: what its start takes, and what it brings."""
PATIENCE_S = 60.0
LOOK_S = 0.04
"""How often threads of the new process are looked at."""
FIRST = -20
IDLE = "while idle"


@dataclass(slots=True)
class Round:
    """What came of one start under load."""

    shares: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Queries in time, and all of them, before, meanwhile and after."""
    waits: dict[str, float] = field(default_factory=dict)
    """How long the gateway that was there waited for a core, in s each second."""
    took_s: float = 0.0
    used_s: dict[str, float] = field(default_factory=dict)
    """Processor time of the new process until it took connections, by what it yielded to."""


class Recorded(OpenLoop):
    """Keeps for each query when it was due and whether it was in time."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.kept: list[tuple[float, bool]] = []
        self._opening: set[asyncio.Task[None]] = set()

    def answered(self, by: Connection, status: bytes, body: bytes, now_s: float) -> None:
        in_time = status == b"200" and (now_s - by.due_s) * 1000 <= self.job.within_ms
        self.kept.append((by.due_s, in_time))
        super().answered(by, status, body, now_s)

    def lost(self, by: Connection) -> None:
        """A gateway that goes may end connections: one that is at rest is opened anew, and on any
        other a query has come to nothing."""
        if self.finished.is_set():
            return
        if by in self.free:
            self.free.remove(by)
        else:
            self.kept.append((by.due_s, False))
        self.connections.remove(by)
        self._opening.add(opening := asyncio.get_running_loop().create_task(self._open()))
        opening.add_done_callback(self._opening.discard)

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(lambda: Connection(self), "127.0.0.1", self.job.port)
        self.connections.append(made)
        self.free.append(made)


def client() -> None:
    """Do a job of standard input until that is closed; prints when queries were due, and which
    were in time."""
    job = Job(**json.loads(sys.stdin.readline()))
    driver = Recorded(job)

    async def until_closed() -> None:
        await driver.connect()
        driver.measured_from_s, driver.end_s = time.perf_counter() + WARM_UP_S, inf
        asking = asyncio.create_task(driver.drive())
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        driver.due.clear()
        await asking
        driver.finished.set()

    uvloop.run(until_closed())
    json.dump(driver.kept, sys.stdout)


class Watched:
    """Processor time of gateways that come, by how their threads are scheduled, and how long the
    one that is there waited for a core meanwhile."""

    def __init__(self, gateway: psutil.Process) -> None:
        self._gateway = gateway.pid
        self._parent = gateway.ppid()
        self._known = set(children(self._parent))
        self._used_ns: dict[tuple[int, int], int] = {}
        self.by: dict[int, Counter[str]] = {}
        self._stop = Event()
        self._thread = Thread(target=self._watch)

    def __enter__(self) -> "Watched":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_S):
            for pid in children(self._parent):
                if pid not in self._known:
                    self._look(pid)

    def _look(self, pid: int) -> None:
        for thread in threads(pid):
            with suppress(OSError):
                used_ns, _ = times_ns(pid, thread)
                idle = os.sched_getscheduler(thread) == os.SCHED_IDLE
                how = IDLE if idle else f"nice {os.getpriority(os.PRIO_PROCESS, thread)}"
                grown_ns = used_ns - self._used_ns.get((pid, thread), 0)
                self._used_ns[pid, thread] = used_ns
                self.by.setdefault(pid, Counter())[how] += grown_ns


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def threads(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    return []


def times_ns(pid: int, thread: int) -> tuple[int, int]:
    """How long a thread has computed, and how long it has waited for a core to do so."""
    used, waited, _ = Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()
    return int(used), int(waited)


def waited_s(process: psutil.Process) -> float:
    return sum(times_ns(process.pid, thread)[1] for thread in threads(process.pid)) / 1e9


def rounds(state: Path, rate: float, seed: int, starts: int, *, first: bool) -> Iterator[Round]:
    """So many starts under load, one after the other."""
    with deployed(state, gateways=1) as running:
        job = Job(
            port=running.port, connections=CONNECTIONS, seconds=60.0 * starts, task=TINY.name,
            width=TINY.width, decimals=4, within_ms=TINY.slo_ms, slo_ms=TINY.slo_ms, rate=rate,
            seed=seed,
        )  # fmt: skip
        with subprocess.Popen(
            [sys.executable, "-m", "tests.bench.live.another_gateway", "--client"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as asking:
            assert asking.stdin is not None
            asking.stdin.write(json.dumps(asdict(job)) + "\n")
            asking.stdin.flush()
            if first:
                go_first([os.getpid(), asking.pid, *(p.pid for p in running.processes())])
            found = [one_start(running) for _ in range(starts)]
            said, _ = asking.communicate()
    kept: list[tuple[float, bool]] = json.loads(said)
    for each, began_s, ended_s in found:
        parts = {
            "before": (began_s - BEFORE_S, began_s),
            "meanwhile": (began_s, ended_s),
            "after": (ended_s, ended_s + AFTER_S),
            "in all": (began_s, began_s + IN_ALL_S),
        }
        for name, (begin_s, end_s) in parts.items():
            good = [ok for due_s, ok in kept if begin_s <= due_s < end_s]
            each.shares[name] = sum(good), len(good)
        each.took_s = ended_s - began_s
        yield each


def one_start(running: Deployment) -> tuple[Round, float, float]:
    """One more gateway comes, and goes again; with when it was asked for and when it was there."""
    [gateway] = gateways_of(running)
    found = Round()
    live_url = load_settings(state_dir=running.state_dir).live_url
    time.sleep(SETTLE_S)
    before_s = waited_s(gateway)
    time.sleep(BEFORE_S)
    with Watched(gateway) as watched:
        began_s, waiting_s = time.perf_counter(), waited_s(gateway)
        found.waits["before"] = (waiting_s - before_s) / BEFORE_S
        asyncio.run(one_more(live_url))
        ended_s = time.perf_counter()
        found.waits["meanwhile"] = (waited_s(gateway) - waiting_s) / (ended_s - began_s)
    # Processes of one and the same title may have come and gone meanwhile.
    new = max(watched.by.values(), key=Counter.total)
    found.used_s = {how: ns / 1e9 for how, ns in new.items()}
    time.sleep(max(AFTER_S, began_s + IN_ALL_S - time.perf_counter()))
    asyncio.run(none_more(live_url))
    running.until(lambda: len(gateways_of(running)) == 1, "one gateway has ended")
    return found, began_s, ended_s


def go_first(pids: Sequence[int]) -> None:
    """Have the sessions of these go before all others of the machine; root alone may."""
    for pid in pids:
        with suppress(OSError):
            Path(f"/proc/{pid}/autogroup").write_text(str(FIRST))


def is_gateway(process: psutil.Process) -> bool:
    return title(process).strip().endswith(":gateway")


def gateways_of(running: Deployment) -> list[psutil.Process]:
    return [process for process in running.processes() if is_gateway(process)]


async def none_more(live_url: str) -> None:
    """Have it go again."""
    async with opened(live_url) as live:
        await live.end_replacing()


async def one_more(live_url: str) -> None:
    """Have one more gateway run, and return when it reports."""
    async with opened(live_url) as live:
        before = len(await live.gateways())
        deadline_s = time.monotonic() + PATIENCE_S
        while len(await live.gateways()) <= before:
            assert time.monotonic() < deadline_s, "no other gateway came"
            await live.put_replacing(["gateways"])
            await asyncio.sleep(0.1)


def show(name: str, found: Sequence[Round]) -> None:
    """A line for each checkout: shares pooled over rounds, the rest as medians."""
    line = f"{name:10}"
    for part in ("before", "meanwhile", "after", "in all"):
        good, asked = (sum(each.shares[part][at] for each in found) for at in (0, 1))
        line += f" {part} {good / max(1, asked):6.1%}"
    for part in ("before", "meanwhile"):
        waited_ms = median(1000 * each.waits[part] for each in found)
        line += f"  {part} it waits {waited_ms:4.0f} ms/s"
    line += f"  took {median(each.took_s for each in found):4.1f} s"
    for how in sorted({how for each in found for how in each.used_s}):
        used_s = median(each.used_s.get(how, 0.0) for each in found)
        line += f"  {how}: {used_s:.2f} s"
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.another_gateway")
    parser.add_argument("--client", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--beside", type=Path, action="append", default=[], metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--starts", type=int, default=3, help="in each round")
    parser.add_argument("--rate", type=float, default=4_000.0, help="queries per second")
    parser.add_argument("--first", action="store_true", help="before other sessions of the machine")
    given = parser.parse_args()
    if given.client:
        client()
        return
    print(machine.describe())
    folders = {"this": Path.cwd()} | {f"beside {at}": f for at, f in enumerate(given.beside)}
    found: dict[str, list[Round]] = {name: [] for name in folders}
    with ExitStack() as made:
        files = export(TINY, Path(made.enter_context(TemporaryDirectory())))
        home = made.enter_context(short_directory())
        states = {name: home / str(at) for at, name in enumerate(folders)}
        for name, folder in folders.items():
            with sources(folder.resolve()):
                servers.register(states[name], TINY, files)
        for seed in range(given.rounds):
            for name, folder in folders.items():
                with sources(folder.resolve()):
                    found[name] += rounds(
                        states[name], given.rate, seed, given.starts, first=given.first
                    )
                show(f"  {name}", found[name][-given.starts :])
    for name, each in found.items():
        show(name, each)


if __name__ == "__main__":
    main()
