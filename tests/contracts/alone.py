"""What is only true of a process that does nothing else: how much memory it takes, how many
threads it has.

``python -m tests.contracts.alone rounds|threads`` reads load specs, one line of JSON each, and
answers each with a line.
"""

import ctypes
import gc
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.contracts.network import images
from variants.types import TensorSpec
from workers.runtimes.registry import make_runtime
from workers.types import LoadSpec

ROUNDS = 12
WARM_UP_ROUNDS = 10
_ROOT = Path(__file__).parent.parent.parent


def ask(what: str, specs: Sequence[LoadSpec], given: int) -> list[float]:
    """What a new process says of each variant, loaded with so many threads, one after another."""
    lines = [json.dumps({"spec": asdict(spec), "given": given}) for spec in specs]
    done = subprocess.run(
        [sys.executable, "-m", "tests.contracts.alone", what],
        input="\n".join(lines), capture_output=True, text=True, cwd=_ROOT, check=False,
        timeout=1_200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [float(line) for line in done.stdout.split()]


def grown_mib(spec: LoadSpec, given: int) -> float:
    """By how much the process is larger after so many rounds of load, run and close."""

    def rounds(count: int) -> float:
        for _ in range(count):
            runtime = make_runtime(spec, given)
            runtime.load()
            runtime.run([rows])
            runtime.close()
        # What is free in the allocator's pools is no leak, and comes and goes.
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        return resident_mib()

    rows = images(8)
    before = rounds(WARM_UP_ROUNDS)
    return rounds(ROUNDS) - before


def threads(spec: LoadSpec, given: int) -> float:
    """How many threads the process has after a few large batches."""
    runtime = make_runtime(spec, given)
    runtime.load()
    for _ in range(3):
        runtime.run([images(256)])
    count = len(os.listdir("/proc/self/task"))
    runtime.close()
    return count


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


def _spec(values: dict[str, Any]) -> LoadSpec:
    for side in ("inputs", "outputs"):
        values[side] = tuple(
            TensorSpec(name=each["name"], dtype=each["dtype"], shape=tuple(each["shape"]))
            for each in values[side]
        )
    values["options"] = tuple(tuple(pair) for pair in values["options"])
    return LoadSpec(**values)


def main() -> None:
    measure = {"rounds": grown_mib, "threads": threads}[sys.argv[1]]
    for line in sys.stdin:
        request = json.loads(line)
        print(measure(_spec(request["spec"]), request["given"]), flush=True)


if __name__ == "__main__":
    main()
