"""Worker processes that are forked: starting Python and importing takes most of half a second.

One process imports what a worker needs and becomes any number of them, for the tests of one process
of pytest. What it is told comes over a socket, a line of JSON each, with the pipe that the worker
writes its address to; it answers with what it has started, and with what has ended. It ends, with
all its workers, when the socket is closed.

    python -m tests.workers.forked SOCKET

serves on the socket of that number.
"""

import asyncio
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock, Thread
from typing import NoReturn

ROOT = Path(__file__).parents[2]
LONGEST = 1 << 16
"""Bytes of what is told at once."""


class Forked:
    """A worker's process, as ``asyncio.subprocess.Process`` shows one."""

    def __init__(self, pid: int, stdout: asyncio.StreamReader) -> None:
        self.pid = pid
        self.stdout = stdout
        self.ended: Future[int] = Future()

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
    return await _server().start(arguments)


class _Server:
    """The process that is forked, as the tests see it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            subprocess.Popen(
                [sys.executable, "-m", "tests.workers.forked", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                # One thread: others would not be there after a fork.
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )
        self._lock = Lock()
        self._asked: list[Future[int]] = []
        self._running: dict[int, Forked] = {}
        self._ended: dict[int, int] = {}
        """Those that ended before anybody knew that they had begun."""
        Thread(target=self._listen, daemon=True).start()

    async def start(self, arguments: tuple[str, ...]) -> Forked:
        ours, theirs = os.pipe()
        asked: Future[int] = Future()
        with self._lock:
            self._asked.append(asked)
            socket.send_fds(self._socket, [json.dumps(arguments).encode()], [theirs])
        os.close(theirs)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb")
        )
        forked = Forked(await asyncio.wrap_future(asked), reader)
        with self._lock:
            self._running[forked.pid] = forked
            code = self._ended.pop(forked.pid, None)
        if code is not None:
            forked.ended.set_result(code)
        return forked

    def _listen(self) -> None:
        while told := self._socket.recv(LONGEST):
            message = json.loads(told)
            with self._lock:
                if "started" in message:
                    self._asked.pop(0).set_result(message["started"])
                    continue
                forked = self._running.pop(message["ended"], None)
                if forked is None:
                    self._ended[message["ended"]] = message["code"]
            if forked is not None:
                forked.ended.set_result(message["code"])


@cache
def _server() -> _Server:
    return _Server()


def main(connection: socket.socket) -> None:
    """Fork a worker for each message, and tell which have ended."""
    import workers.host
    import workers.runtimes.echo  # noqa: F401 -- what most of them load

    woken, wake = socket.socketpair()
    for one in (woken, wake):
        one.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    here: set[int] = set()
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if woken in ready:
                woken.recv(LONGEST)
                for pid, code in _over(here):
                    _tell(connection, ended=pid, code=code)
            if connection in ready:
                told, given, _, _ = socket.recv_fds(connection, LONGEST, 1)
                if not told:
                    break
                if not (pid := os.fork()):
                    signal.set_wakeup_fd(-1)
                    for one in (connection, woken, wake):
                        one.close()
                    _become(json.loads(told), given[0])
                os.close(given[0])
                here.add(pid)
                _tell(connection, started=pid)
    for pid in here:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _over(here: set[int]) -> list[tuple[int, int]]:
    """Which of these have ended, and with what."""
    found = []
    for pid in list(here):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            here.discard(pid)
            found.append((pid, os.waitstatus_to_exitcode(status)))
    return found


def _tell(connection: socket.socket, **message: int) -> None:
    with suppress(OSError):  # nobody listens any more; the next look at the socket sees it
        connection.send(json.dumps(message).encode())


def _become(arguments: list[str], stdout: int) -> NoReturn:
    """Be a worker, as if this process had been started as one."""
    from workers.host import main as host

    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(stdout, 1)
        os.close(stdout)
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        sys.argv = ["workers.host", *arguments]
        host()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
