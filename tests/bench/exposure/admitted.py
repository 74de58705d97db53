"""Processor time of a worker for each query: taken in, run in a batch, answered.

    python -m tests.bench.exposure.admitted [--before FOLDER] [--rounds 9]

Queries of 64 numbers to a model that costs nothing, in batches of 1, 8 and 32, with a ledger of
crashes. ``FOLDER`` holds another version of the code: both are measured in turns, a process each,
and the least of each counts, because what else runs only adds.
"""

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path
from subprocess import run
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tests.workers.builders import config, echo_spec, running, vid
from variants.types import TensorSpec
from workers.channel.frames import HEADER, infer_frame, layout_of, unpack_infer

SIZES = (1, 8, 32)
QUERIES = 20_000
WIDTH = 64


class Counting:
    """Takes answers and counts them."""

    tag = b"none"

    def __init__(self) -> None:
        self.count = 0

    def send(self, frame: bytes) -> None:
        self.count += 1

    def answer(self, chunks: Any) -> None:
        self.count += len(chunks)


async def turn() -> None:
    """One turn of the event loop."""
    await asyncio.sleep(0)


async def measure(folder: Path) -> list[float]:
    """µs of processor time for each query, by batch size."""
    side = TensorSpec(name="x", dtype="float32", shape=(WIDTH,))
    spec = echo_spec(inputs=(side,), outputs=(side,), latency=((1, 0.01), (64, 0.02)))
    frame = b"".join(infer_frame(1, vid(spec), 1, 60 * 10**6, [np.zeros((1, WIDTH), np.float32)]))
    found = []
    async with running(config(folder, quarantine_dir=str(folder / "q"))) as (host, connection):
        await connection.load(spec, 60.0)
        submit, answers = host._running().submit, Counting()
        for size in SIZES:
            answers.count = 0
            began_s = time.process_time()
            for at in range(0, QUERIES, size):
                for _ in range(size):
                    _, _, _, described, number, rows, variant, budget_us, *_ = unpack_infer(frame)
                    base = HEADER + described
                    layout = layout_of(frame[HEADER:base])
                    submit(variant, rows, budget_us, layout, frame, base, answers, number)
                while answers.count < at + size:
                    await turn()
            found.append((time.process_time() - began_s) / answers.count * 1e6)
    return found


def in_a_process(folder: str) -> list[float]:
    command = [sys.executable, str(Path(__file__).resolve()), "--once"]
    kept = {**os.environ, "PYTHONPATH": folder, "OMP_NUM_THREADS": "1"}
    done = run(command, cwd=folder, env=kept, check=True, capture_output=True, text=True)
    return [float(word) for word in done.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", default="")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--once", action="store_true", help="for the benchmark's own children")
    given = parser.parse_args()
    if given.once:
        import uvloop

        with TemporaryDirectory(prefix="ml-", dir="/tmp") as place:
            print(*uvloop.run(measure(Path(place))))
        return
    folders = {"now": os.getcwd()} | ({"before": given.before} if given.before else {})
    found: dict[str, list[list[float]]] = {name: [] for name in folders}
    for _ in range(given.rounds):
        for name, folder in folders.items():
            found[name].append(in_a_process(folder))
    print("| batch | " + " | ".join(f"{name}, µs a query" for name in folders) + " |")
    print("|--:|" + "--:|" * len(folders))
    for at, size in enumerate(SIZES):
        cells = [f"{min(one[at] for one in found[name]):.2f}" for name in folders]
        print(f"| {size} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
