"""Worker processes that are forked from one that has imported what a worker needs."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from functools import cache

from tests.workers.forking import Begun, Server


class Forked:
    """A worker's process, as ``asyncio.subprocess.Process`` shows one."""

    def __init__(self, begun: Begun, stdout: asyncio.StreamReader) -> None:
        self.pid, self.ended = begun
        self.stdout = stdout

    @property
    def returncode(self) -> int | None:
        return self.ended.result() if self.ended.done() else None

    def send_signal(self, number: int) -> None:
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        # Who waits for so long only gives up alone.
        return await asyncio.shield(asyncio.wrap_future(self.ended))


async def worker(*arguments: str) -> Forked:
    """Start a worker with the arguments of ``python -m workers.host``."""
    ours, theirs = os.pipe()
    asked = _server().start(arguments, [theirs])
    os.close(theirs)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb")
    )
    return Forked(await asyncio.wrap_future(asked), reader)


@cache
def _server() -> Server:
    return Server("tests.workers.forked")


def prepare() -> None:
    """Import what a worker needs, and what most of them load."""
    import workers.host
    import workers.runtimes.echo  # noqa: F401


def become(arguments: list[str], given: Sequence[int]) -> None:
    """Be a worker, which writes its address to the file."""
    from workers.host import main

    os.dup2(given[0], 1)
    os.close(given[0])
    sys.argv = ["workers.host", *arguments]
    main()
