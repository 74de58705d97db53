"""What an installation takes while nobody asks: memory, processor and start, by process.

Run with ``python -m tests.bench.serving.idle`` from the repository's root; it takes a minute for
each run. ``--beside-ray`` starts, after each, one Ray Serve application with an HTTP proxy and
one replica of nothing, started with the same environment, and measures it in the same way:
what Ray alone takes of this machine.

Printed for each process: PSS in MiB (a page that n processes share counts 1/n for each), of it
anonymous (what no other process can share unless it was forked from it), and percent of a core
over ``--seconds``, counted from ``--settle`` seconds after the first answer. The start is timed
from the command to the first answer of a query that is sent until it is answered; beside it the
seconds to "ready", which waits for all variants to be loaded, and the processor time that all
processes, also those that have ended, had used by then: other programs lengthen the former much
more than the latter.
"""

import argparse
import http.client
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

from tests.bench.machine import Others
from tests.bench.serving.state import copy_filled
from tests.integration.deployment import Deployment, deployed, environment, short_directory

RAY_ALONE = """
import os, time, ray
from ray import serve
@serve.deployment
class Nothing:
    async def __call__(self, request):
        return "nothing"
ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR",
         log_to_driver=False, object_store_memory=80 * 2**20, _temp_dir=os.environ["RAY_PLACE"])
serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": 0},
            logging_config={"log_level": "WARNING"})
serve.run(Nothing.bind())
print("ready", flush=True)
time.sleep(3600)
"""


class Taken(NamedTuple):
    """Of one process."""

    name: str
    pss_mib: float
    anonymous_mib: float
    cpu_percent: float


class Measured(NamedTuple):
    processes: list[Taken]
    answer_s: float
    ready_s: float
    start_cpu_s: float
    others_cores: float


class FirstAnswer(threading.Thread):
    """Asks one query after the other until one is answered; connections are refused before."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self.at_s = 0.0

    def run(self) -> None:
        body = b'{"task": "digits", "inputs": [[' + b",".join([b"0.0"] * 64) + b"]]}"
        while not self.at_s:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
            try:
                connection.request("POST", "/v1/query", body)
                if connection.getresponse().status == 200:
                    self.at_s = time.monotonic()
            except (OSError, http.client.HTTPException):
                pass
            finally:
                connection.close()
            time.sleep(0.02)


def measure(home: Path, settle_s: float, seconds: float) -> Measured:
    state = copy_filled(home)
    began_s = time.monotonic()
    first: list[FirstAnswer] = []

    def ask_when_started(deployment: Deployment) -> None:
        first.append(FirstAnswer(deployment.port))
        first[0].start()

    with deployed(state, meanwhile=ask_when_started) as running:
        ready_s = time.monotonic() - began_s
        first[0].join(60)
        answer_s = first[0].at_s - began_s
        family = [psutil.Process(running.process.pid), *running.processes()]
        start_cpu_s = sum(sum(process.cpu_times()[:4]) for process in family)
        time.sleep(settle_s)
        family = [psutil.Process(running.process.pid), *running.processes()]
        processes, others_cores = watch(family, seconds)
    return Measured(processes, answer_s, ready_s, start_cpu_s, others_cores)


@contextmanager
def ray_alone(home: Path) -> Iterator[list[psutil.Process]]:
    """Ray Serve with one replica of nothing behind its HTTP proxy."""
    surroundings = environment(home, 0) | {"RAY_PLACE": str(home / "r")}
    surroundings |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    process = subprocess.Popen(
        [sys.executable, "-c", RAY_ALONE],
        env=surroundings,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    started: list[psutil.Process] = []
    try:
        assert process.stdout.readline() == "ready\n"
        started = [psutil.Process(process.pid), *psutil.Process(process.pid).children(True)]
        yield started
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
        for left in started:
            if left.is_running():
                left.kill()


def watch(family: Sequence[psutil.Process], seconds: float) -> tuple[list[Taken], float]:
    """What each of these processes takes, and the cores that all others used meanwhile."""
    before = [_used_s(process) for process in family]
    began_s = time.monotonic()
    with Others() as others:
        time.sleep(seconds)
    took_s = time.monotonic() - began_s
    found = []
    for process, used_s in zip(family, before, strict=True):
        rollup = _rollup(process.pid)
        cpu = 100 * (_used_s(process) - used_s) / took_s
        found.append(Taken(name_of(process), rollup["Pss"], rollup["Pss_Anon"], cpu))
    return found, others.cores


def _used_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _rollup(pid: int) -> dict[str, float]:
    """MiB by name, from the kernel's sums over all mappings."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {name.rstrip(":"): int(kib) / 1024 for name, kib, *_ in map(str.split, lines)}


def name_of(process: psutil.Process) -> str:
    words = process.cmdline()
    if words[0].startswith("ray::"):
        return words[0].split()[0]
    return next((os.path.basename(w) for w in words if w.endswith((".py", "monitor"))), "") or (
        "modelless up" if "up" in words else os.path.basename(words[0])
    )


def show(title: str, processes: Sequence[Taken]) -> None:
    print(f"\n{title}\n{'':44} {'PSS':>7} {'anon.':>7} {'% core':>7}")
    for one in sorted(processes, key=lambda one: -one.pss_mib):
        print(f"{one.name:44} {one.pss_mib:7.1f} {one.anonymous_mib:7.1f} {one.cpu_percent:7.2f}")
    pss, anonymous, cpu = (sum(part) for part in zip(*(one[1:] for one in processes), strict=True))
    print(f"{f'all {len(processes)}':44} {pss:7.1f} {anonymous:7.1f} {cpu:7.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.serving.idle", description=__doc__)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--settle", type=float, default=10.0)
    parser.add_argument("--beside-ray", action="store_true")
    asked = parser.parse_args()
    runs = []
    for run in range(asked.runs):
        with short_directory() as home:
            found = measure(home, asked.settle, asked.seconds)
        runs.append(found)
        show(f"modelless, run {run + 1}", found.processes)
        print(
            f"first answer after {found.answer_s:.1f} s, ready after {found.ready_s:.1f} s,"
            f" {found.start_cpu_s:.1f} s of processor;"
            f" others used {found.others_cores:.2f} cores"
        )
        if asked.beside_ray:
            with short_directory() as home, ray_alone(home) as family:
                time.sleep(asked.settle)
                show("Ray Serve alone", watch(family, asked.seconds)[0])
    if len(runs) > 1:
        print(f"\nfirst answer, median: {median(one.answer_s for one in runs):.1f} s")


if __name__ == "__main__":
    main()
