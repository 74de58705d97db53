"""A gateway that is full before its workers are: ``python -m tests.bench.live.full_gateway``.

A model that takes microseconds, ``modelless up`` with one gateway, and more queries of 64 numbers
than that can read and answer, each with a deadline of 20 ms: from 128 clients that ask again at
once, and as a Poisson process. What counts is how many were answered in time by the gateway's
clock, per second: behind 128 connections the client's own queue makes all of them late at twice
what can be served. Two minutes; ``--beside FOLDER`` measures another checkout in turns.

A machine whose neighbours take its time is where it matters: a gateway that falls behind once has
to come out of it again. So single runs differ by several times, and only several in turns compare.
"""

import argparse
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench import machine
from tests.bench.peers.models import MODELS, export
from tests.bench.serving.load import Job, run
from tests.integration.deployment import CLI, environment, short_directory
from tests.ports import free_port

ROOT = Path(__file__).parents[3]
TINY = MODELS[0]
PATIENT_MS = 5_000.0
LOADS = ("32 patient", "128 at once", "4000/s", "8000/s")


@dataclass(frozen=True, slots=True)
class Checkout:
    name: str
    root: Path
    state: Path

    def command(self, *arguments: str, port: int) -> tuple[list[str], dict[str, str]]:
        env = environment(self.state, port, gateways=1) | {"PYTHONPATH": str(self.root)}
        return [*CLI, *arguments], env

    def register(self, model: Path, rows: Path) -> None:
        arguments = ["register", str(model), "--task", TINY.name, "--eval", str(rows)]
        command, env = self.command(*arguments, "--variants", "onnx-fp32", port=free_port())
        subprocess.run(command, cwd=self.root, env=env, check=True, capture_output=True)

    @contextmanager
    def up(self) -> Iterator[int]:
        """The product in the background; the port that it serves on."""
        port = free_port()
        command, env = self.command("up", "--detach", port=port)
        subprocess.run(command, cwd=self.root, env=env, check=True, capture_output=True)
        try:
            yield port
        finally:
            command, env = self.command("down", port=port)
            subprocess.run(command, cwd=self.root, env=env, check=True, capture_output=True)

    def measure(self, seconds: float) -> None:
        with self.up() as port:
            for load in LOADS:
                number = float(load.removesuffix("/s").split()[0])
                job = Job(
                    port=port, connections=128, seconds=seconds, task=TINY.name, width=TINY.width,
                    decimals=4, within_ms=TINY.slo_ms, slo_ms=TINY.slo_ms,
                )  # fmt: skip
                if load.endswith("/s"):
                    job = replace(job, rate=number)
                else:
                    patient = PATIENT_MS if load.endswith("patient") else TINY.slo_ms
                    job = replace(job, connections=int(number), slo_ms=patient)
                found = run(job)
                answered = found.statuses.get("200", 0)
                print(
                    f"{self.name:7} {load:12} answered in time by the gateway"
                    f" {answered / found.seconds:6.0f}/s of {found.asked / found.seconds:6.0f},"
                    f" by the client {found.good / found.seconds:6.0f}/s;"
                    f" p50 {found.ms['total']['p50']:7.1f} ms, p99 {found.ms['total']['p99']:7.1f}",
                    flush=True,
                )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.full_gateway")
    parser.add_argument("--beside", type=Path, metavar="FOLDER", help="another checkout")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4.0)
    given = parser.parse_args()
    print(machine.describe())
    with ExitStack() as made:
        files = export(TINY, Path(made.enter_context(TemporaryDirectory())))
        checkouts = [Checkout("this", ROOT, made.enter_context(short_directory()) / "s")]
        if given.beside:
            state = made.enter_context(short_directory()) / "s"
            checkouts.append(Checkout("beside", given.beside.resolve(), state))
        for each in checkouts:
            each.state.mkdir()
            each.register(*files)
        for _ in range(given.rounds):
            for each in checkouts:
                each.measure(given.seconds)


if __name__ == "__main__":
    main()
