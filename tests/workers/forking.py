"""Processes that are forked: starting Python and importing takes most of half a second.

One process imports what is needed and becomes any number of others, for the tests of one process of
pytest. What it is told comes over a socket: a JSON text with the arguments of each, and the files
that it is given. It answers with what it has started, and with what has ended. It ends, with all
that it became, when the socket is closed.

    python -m tests.workers.forking SOCKET MODULE [ARGUMENT...]

serves on the socket of that number. ``MODULE`` has ``prepare``, which is called once with the
arguments here, and ``become``, which is called in each process with its own arguments and files,
and whose result is the process's exit code.
"""

import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

ROOT = Path(__file__).parents[2]
LONGEST = 1 << 16
"""Bytes of what is told at once."""
MOST_FILES = 4
ENDING_S = 60.0
"""What was imported may have something to do at the end."""


class Begun(NamedTuple):
    """A process that was forked."""

    pid: int
    ended: Future[int]
    """Its exit code; negative is the signal that ended it."""


class Server:
    """The process that is forked, as the tests see it."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        environment: Mapping[str, str] = os.environ,
        one_thread: bool = True,
    ) -> None:
        """Start it.

        Args:
            one_thread: what it imports computes with one thread, also after it was forked: other
                threads would not be there.
        """
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} if one_thread else {}
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            number = str(theirs.fileno())
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.workers.forking", number, module, *arguments],
                pass_fds=[theirs.fileno()],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                env={**environment, **threads},
            )
        self.pid = self._process.pid
        self._lock = Lock()
        self._asked: list[Future[Begun]] = []
        self._running: dict[int, Begun] = {}
        Thread(target=self._listen, daemon=True).start()

    def start(self, arguments: Sequence[Any], files: Sequence[int]) -> Future[Begun]:
        """Have it fork. The files stay open here."""
        asked: Future[Begun] = Future()
        with self._lock:
            self._asked.append(asked)
            socket.send_fds(self._socket, [json.dumps(arguments).encode()], files)
        return asked

    def close(self) -> None:
        """End it, with all that it became."""
        self._socket.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(ENDING_S)
        except subprocess.TimeoutExpired:  # it has ended the others before
            self._process.kill()
            self._process.wait()

    def _listen(self) -> None:
        while told := self._told():
            message = json.loads(told)
            pid = message["pid"]
            with self._lock:
                if "code" not in message:
                    self._running[pid] = begun = Begun(pid, Future())
                    self._asked.pop(0).set_result(begun)
                    continue
                ended = self._running.pop(pid).ended
            ended.set_result(message["code"])
        how = self._how_it_ended()
        with self._lock:
            for asked in self._asked:
                asked.set_exception(ChildProcessError(f"the process that is forked has ended{how}"))
            for begun in self._running.values():
                begun.ended.set_exception(
                    ChildProcessError(f"what it was forked of has ended{how}")
                )

    def _how_it_ended(self) -> str:
        """``, by SIGKILL``: as by the kernel, for want of memory. What it said itself is on its
        standard error."""
        try:
            code = self._process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            return " its connection, and goes on"
        return f", by {signal.Signals(-code).name}" if code < 0 else f", with exit code {code}"

    def _told(self) -> bytes:
        try:
            return self._socket.recv(LONGEST)
        except OSError:
            return b""


def main(connection: socket.socket, module: ModuleType) -> None:
    """Fork for each message, and tell which have ended."""
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
                    _tell(connection, pid=pid, code=code)
            if connection in ready:
                told, given, _, _ = socket.recv_fds(connection, LONGEST, MOST_FILES)
                if not told:
                    break
                if not (pid := os.fork()):
                    signal.set_wakeup_fd(-1)
                    for one in (connection, woken, wake):
                        one.close()
                    _become(module, json.loads(told), given)
                with suppress(PermissionError, ProcessLookupError):
                    os.setpgid(pid, pid)  # before anybody knows of it, and may end its group
                for file in given:
                    os.close(file)
                here.add(pid)
                _tell(connection, pid=pid)
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


def _become(module: ModuleType, arguments: list[Any], given: Sequence[int]) -> NoReturn:
    """Be another process, as if this one had been started as that."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        threading.main_thread()._set_native_id()  # type: ignore[attr-defined]  # Python leaves it
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        module.become(arguments, given)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    served = importlib.import_module(sys.argv[2])
    served.prepare(*sys.argv[3:])
    main(socket.socket(fileno=int(sys.argv[1])), served)
