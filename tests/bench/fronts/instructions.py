"""How many instructions of the processor a lone query takes, whatever else the machine does.

``python -m tests.bench.fronts.instructions`` runs a real gateway and a real worker with one tiny
model in ``valgrind --tool=callgrind``, which has to be installed and makes them some fifty times as
slow. It asks one query after the other, then nothing for as long as that took, and takes off what
the processes do by themselves. ``--anew`` opens a connection for each query. ``--beside FOLDER``
counts another version of the sources as well.
"""

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.fronts.counted import LONE, query
from tests.bench.serving.lone import asked_in_turn, exchanged

WARM = 300
"""Queries before those that count."""
ASKED, IDLE = 1, 2
"""Numbers of the dumps."""
VALGRIND = (
    "valgrind", "--tool=callgrind", "--instr-atstart=no", "--trace-children=yes",
    "--trace-children-skip=*valkey*",
)  # fmt: skip


def ask(port: int, queries: int, *, anew: bool) -> float:
    """How long it took, in seconds."""
    asked, began_s = query(port), time.monotonic()
    if anew:
        for _ in range(queries):
            with socket.create_connection(("127.0.0.1", port)) as connection:
                exchanged(connection, asked)
    else:
        asked_in_turn(port, asked, queries - LONE, 0.0)
    return time.monotonic() - began_s


def control(pid: int, *what: str) -> None:
    command = ["callgrind_control", *what, str(pid)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def counted(folder: Path, sources: Path, queries: int, *, anew: bool) -> list[float]:
    """Thousands of instructions of gateway and worker for a query."""
    command = [*VALGRIND, f"--callgrind-out-file={folder}/%p", sys.executable]
    command += ["-m", "tests.bench.fronts.one_process", "--serve", "two processes"]
    with subprocess.Popen(
        command, cwd=sources, env={**os.environ, "PYTHONPATH": str(sources)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        port, pids = json.loads(child.stdout.readline())
        ask(port, WARM, anew=anew)
        counting(pids, on=True)
        took_s = ask(port, queries, anew=anew)
        counting(pids, on=False)
        counting(pids, on=True)
        time.sleep(took_s)
        counting(pids, on=False)
        child.communicate(timeout=120)
    return [
        (total(folder / f"{pid}.{ASKED}") - total(folder / f"{pid}.{IDLE}")) / queries / 1e3
        for pid in pids
    ]


def counting(pids: list[int], *, on: bool) -> None:
    """Begin to count, or end it with a dump."""
    for pid in pids:
        if on:
            control(pid, "-i", "on")
        else:
            control(pid, "-i", "off")
            control(pid, "-d")


def total(dump: Path) -> int:
    """All instructions in a dump."""
    found = re.search(r"^totals: (\d+)$", dump.read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fronts.instructions")
    parser.add_argument("--beside", type=Path, help="a folder with another version of the sources")
    parser.add_argument("--queries", type=int, default=450)
    parser.add_argument("--anew", action="store_true", help="a connection for each query")
    given = parser.parse_args()
    print("| thousands of instructions per query | gateway | worker |")
    print("|---|--:|--:|")
    folders = {"here": Path.cwd()} | ({"beside": given.beside} if given.beside else {})
    for name, sources in folders.items():
        with tempfile.TemporaryDirectory(prefix="ml-") as folder:
            gateway, worker = counted(Path(folder), sources, given.queries, anew=given.anew)
        print(f"| {name} | {gateway:.1f} | {worker:.1f} |", flush=True)


if __name__ == "__main__":
    main()
