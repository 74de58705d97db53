"""Children that are ended while they are being started."""

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path

from controlplane.registry.child_process import end_group, start_group

SPAWNS = """
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
path = pathlib.Path(sys.argv[1])
path.with_suffix(".new").write_text(str(child.pid))
path.with_suffix(".new").rename(path)
time.sleep(600)
"""


def runs(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z"
    return False


def block_until(path: Path) -> None:
    """Let other processes go on, and not the event loop."""
    while not path.exists():
        time.sleep(0.01)


async def test_a_start_that_is_cancelled_leaves_none_of_the_group(tmp_path: Path) -> None:
    """The child's own child holds the pipes open for ten minutes."""
    told = tmp_path / "pid"
    start = asyncio.create_task(
        start_group(sys.executable, "-c", SPAWNS, str(told), env=dict(os.environ))
    )
    async with asyncio.timeout(60):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        block_until(told)  # the process is there, and the loop has not heard of it
        start.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await start

        assert start.cancelled()
        while runs(int(told.read_text())):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_what_is_started_can_be_read_and_ended(tmp_path: Path) -> None:
    child = await start_group(sys.executable, "-c", "print(1)", env=dict(os.environ))
    async with asyncio.timeout(60):
        output, _ = await child.communicate()
    await end_group(child)

    assert output == b"1\n"
