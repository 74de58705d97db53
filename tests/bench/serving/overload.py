"""Overload: what is answered in time when more is asked than can be served.

``python -m tests.bench.serving.overload`` or ``make bench-overload``; it takes two minutes. A
gateway and a worker share one core (``one_core``), the client has another one. Capacity is what
clients that wait for their answers get without a short deadline. Then queries of one image each, as
JSON of 23 kB, come as a Poisson process at multiples of it, each with a deadline of 30 ms. At last
32 clients retry at once whatever they are told, 32 come back when they are told, and 16 of each
kind share the server: who retries at once must not get what others do without.

``--beside FOLDER`` measures another checkout in turn with this one, for a comparison under the same
neighbours.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from tests.bench import machine
from tests.bench.serving.load import Job, Outcome, run

ROOT = Path(__file__).parents[3]
TIMES = (0.5, 0.8, 1.0, 1.5, 2.5, 5.0, 10.0)
SLO_MS = 30.0
PATIENT_MS = 5_000.0
RETRYING = 32
CONNECTIONS = 256
JOB = Job(
    port=0, connections=CONNECTIONS, seconds=4.0, task="images", width=3 * 32 * 32, decimals=4,
    within_ms=SLO_MS, slo_ms=SLO_MS,
)  # fmt: skip
CORES = sorted(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class Server:
    name: str
    port: int
    gateway: psutil.Process

    def measured(self, what: str, job: Job) -> Outcome:
        """Do a job and print a line about it."""
        before_s = self._used_s()
        found = run(replace(job, port=self.port))
        used_us = 1e6 * (self._used_s() - before_s) / max(1, found.answered)
        self._tell(what, found, used_us)
        return found

    def beside(self, jobs: Mapping[str, Job]) -> None:
        """Do jobs at the same time and print a line about each."""
        with ThreadPoolExecutor(len(jobs)) as threads:
            found = threads.map(run, [replace(job, port=self.port) for job in jobs.values()])
        for what, each in zip(jobs, found, strict=True):
            self._tell(what, each, 0.0)

    def _tell(self, what: str, found: Outcome, used_us: float) -> None:
        refused = found.asked - found.statuses.get("200", 0)
        print(
            f"{self.name + ': ' + what:32} {found.good / found.seconds:6.0f} in time/s of"
            f" {found.asked / found.seconds:6.0f}"
            f"  refused {refused / found.seconds:6.0f}/s, p50 {found.ms['refused']['p50']:6.1f} ms"
            f"  p99 {found.ms['total']['p99']:6.1f} ms"
            f"  gateway {used_us:4.0f} µs each  client {found.cpu_cores:.2f} cores",
            flush=True,
        )

    def _used_s(self) -> float:
        used = self.gateway.cpu_times()
        return used.user + used.system


@contextmanager
def serving(name: str, root: Path) -> Iterator[Server]:
    """A gateway that runs the code of a checkout."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.bench.live.one_core", str(CORES[-1])],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            yield Server(name, int(child.stdout.readline()), psutil.Process(child.pid))
        finally:
            child.stdin.close()
            child.wait(60)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.serving.overload")
    parser.add_argument("--beside", type=Path, metavar="FOLDER", help="another checkout")
    parser.add_argument("--times", default=",".join(map(str, TIMES)), metavar="X,...")
    parser.add_argument("--seconds", type=float, default=JOB.seconds)
    given = parser.parse_args()
    job = replace(JOB, seconds=given.seconds, core=CORES[0])
    print(machine.describe())
    with ExitStack() as running:
        servers = [running.enter_context(serving("this", ROOT))]
        if given.beside:
            servers.append(running.enter_context(serving("beside", given.beside.resolve())))
        patient = replace(job, connections=8, slo_ms=PATIENT_MS)
        qps = [server.measured("8 clients, patient", patient).qps for server in servers]
        for times in map(float, given.times.split(",")):
            for server in servers:
                server.measured(f"{times:g} x capacity", replace(job, rate=times * max(qps)))
        for server in servers:
            retrying = replace(job, connections=RETRYING)
            server.measured(f"{RETRYING} that retry at once", retrying)
            server.measured(f"{RETRYING} that wait as told", replace(retrying, obeys=True))
            half = replace(job, connections=RETRYING // 2)
            server.beside(
                {
                    f"{RETRYING // 2} at once, beside": half,
                    f"{RETRYING // 2} as told": replace(half, obeys=True),
                }
            )


if __name__ == "__main__":
    main()
