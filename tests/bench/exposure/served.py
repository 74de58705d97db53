"""A gateway and one worker, a process each, without Ray: what the benchmarks of this folder attack.

``python -m tests.bench.exposure.served`` serves the task ``letters`` until its standard input is
closed, and prints the gateway's port and process id.
"""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory

import uvloop

from controlplane.startup.valkey import EmbeddedValkey
from tests.controlplane.serving import FAST, serving


async def _serve(folder: Path) -> None:
    valkey = EmbeddedValkey(folder)
    valkey.start()
    try:
        async with serving(folder, valkey.url) as served:
            await served.process("w1", FAST)
            print(served.port, os.getpid(), flush=True)
            await asyncio.to_thread(sys.stdin.read)
    finally:
        valkey.stop()


@contextmanager
def started() -> Iterator[tuple[int, int]]:
    """Port and process id of a gateway that runs meanwhile."""
    with Popen([sys.executable, "-m", __name__], stdin=PIPE, stdout=PIPE, text=True) as child:
        assert child.stdout is not None
        port, pid = child.stdout.readline().split()
        try:
            yield int(port), int(pid)
        finally:
            child.communicate("")


if __name__ == "__main__":
    with TemporaryDirectory(prefix="ml-", dir="/tmp") as place:
        uvloop.run(_serve(Path(place)))
