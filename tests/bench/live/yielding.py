"""What it brings that the control loop yields: ``python -m tests.bench.live.yielding``.

``modelless up`` serves a convolutional network, and queries of one image come as a Poisson process,
each with a deadline of 30 ms. The control loop's process runs at niceness 0 and as it is, in turns.
Linux lets only root take a niceness back.
"""

import argparse
import os
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

import psutil

from tests.bench import machine
from tests.bench.peers import servers
from tests.bench.peers.models import MODELS, export
from tests.bench.serving.load import Job, run
from tests.integration.deployment import deployed, short_directory

[MODEL] = [model for model in MODELS if model.name == "small"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.yielding")
    parser.add_argument("--rate", type=float, default=350.0, help="queries per second")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    print(machine.describe())
    with TemporaryDirectory() as made, short_directory() as home:
        servers.register(home / "s", MODEL, export(MODEL, Path(made)))
        with deployed(home / "s") as running:
            job = Job(
                port=running.port, connections=128, seconds=given.seconds, task=MODEL.name,
                width=MODEL.width, decimals=4, within_ms=MODEL.slo_ms, slo_ms=MODEL.slo_ms,
                shape=MODEL.shape, rate=given.rate,
            )  # fmt: skip
            [loop] = [p for p in running.processes() if "controller:controller" in title(p)]
            decided = loop.nice()
            shares: dict[int, list[float]] = {0: [], decided: []}
            for _ in range(given.turns):
                for niceness, found in shares.items():
                    for thread in loop.threads():
                        os.setpriority(os.PRIO_PROCESS, thread.id, niceness)
                    found.append(run(job).good_share)
    for niceness, found in shares.items():
        each = ", ".join(f"{share:.1%}" for share in found)
        print(f"niceness {niceness:2}: in time {mean(found):.1%} ({each})")


def title(process: psutil.Process) -> str:
    return " ".join(process.cmdline())


if __name__ == "__main__":
    main()
