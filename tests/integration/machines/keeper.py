"""The first process of a machine that a test makes, which does there what the test says.

``python keeper.py FD SETUP`` takes requests from the Unix socket ``FD``, one JSON object each, and
answers each with one. It ends when the test closes the socket or dies; the kernel then ends all
that runs in its PID namespace, so nothing of a machine outlives its test. Standard library only.
"""

import errno
import fcntl
import json
import os
import select
import socket
import struct
import subprocess
import sys
from typing import Any

FD = "@FD"
"""Stands for the first descriptor that a program inherits."""
MESSAGE_BYTES = 1 << 20
CONNECT_S = 120.0
SIOCSIFFLAGS = 0x8914
IFF_UP, IFF_RUNNING = 0x1, 0x40


class Keeper:
    """Answers the requests of one test."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._ended: dict[int, int] = {}

    def serve(self) -> None:
        while True:
            ready, _, _ = select.select([self._control], [], [], 0.2)
            self._reap()
            if ready:
                data, given, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES, 8)
                if not data:
                    return
                reply, passed = self._answer(json.loads(data), given)
                socket.send_fds(self._control, [json.dumps(reply).encode()], passed)
                for number in (*given, *passed):
                    os.close(number)

    def _answer(
        self, request: dict[str, Any], given: list[int]
    ) -> tuple[dict[str, Any], list[int]]:
        try:
            if request["do"] == "connect":
                return {}, [_connect(request["address"], request["port"])]
            if request["do"] == "start":
                return {"pid": self._start(request, given)}, []
            if request["do"] == "signal":
                os.kill(request["pid"], request["number"])
                return {}, []
            return {"status": self._ended.get(request["pid"])}, []
        except OSError as error:
            return {"errno": error.errno or errno.EIO, "error": str(error)}, []

    def _start(self, request: dict[str, Any], given: list[int]) -> int:
        """Start a program; the first descriptor is its output, the others it inherits."""
        output, *inherited = given
        process = subprocess.Popen(
            [str(inherited[0]) if word == FD else word for word in request["argv"]],
            env=request["env"],
            cwd=request["cwd"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=inherited,
            start_new_session=True,
            **request["user"],
        )
        self._running[process.pid] = process
        return process.pid

    def _reap(self) -> None:
        """Wait for all that ended here: orphans of this machine become children of ours."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if (process := self._running.pop(pid, None)) is not None:
                self._ended[pid] = process.returncode = os.waitstatus_to_exitcode(status)


def _connect(address: str, port: int) -> int:
    """A connection made here, where the address leads to something."""
    connection = socket.create_connection((address, port), CONNECT_S)
    connection.setblocking(True)
    return connection.detach()


def set_up(setup: dict[str, Any]) -> None:
    """Name this machine, mount what it shall see, and switch its loopback on."""
    if setup.get("loopback"):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            flags = struct.pack("16sh", b"lo", IFF_UP | IFF_RUNNING)
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, flags)
    if "hostname" in setup:
        socket.sethostname(setup["hostname"])
    # Opened first: a mount may hide where another one comes from.
    sources = [os.open(source, os.O_PATH) for source, _ in setup.get("binds", ())]
    for target in setup.get("tmpfs", ()):
        _mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", target)
    for number, (_, target) in zip(sources, setup.get("binds", ()), strict=True):
        if not os.path.exists(target):
            os.makedirs(target)
        # In our own view of the processes, since that is what the child of ours sees, too.
        _mount("--no-canonicalize", "--bind", f"/proc/{os.getpid()}/fd/{number}", target)
        os.close(number)
    if setup.get("read_only"):
        _mount("-o", "remount,bind,ro", "/")


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"mount {' '.join(arguments)}: {done.stderr.strip()}")


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as listened:
        os.set_inheritable(listened.fileno(), False)
        set_up(json.loads(sys.argv[2]))
        Keeper(listened).serve()
