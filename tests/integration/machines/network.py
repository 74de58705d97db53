"""A few machines on this one: a network that has loopback only, and on it machines of their own.

Each machine has its own processes, host name, ``/tmp`` and ``/dev/shm``, so that Ray and its ``ray
stop`` take it for one; all share one loopback, where each has an address: 127.0.0.1, 127.0.0.2 and
so on. Nothing outside can be reached, and nothing of it is left afterwards. Made of Linux
namespaces, as root or as any user who may make a user namespace.
"""

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tests.integration.deployment import short_directory
from tests.integration.machines.keeper import FD, MESSAGE_BYTES
from tests.services import missing

ROOT = Path(__file__).parents[3]
KEEPER = Path(__file__).with_name("keeper.py")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LISTENING = "0A"
"""The state of a listening socket in ``/proc/net/tcp``."""
ISOLATED = ("--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


class Ended(NamedTuple):
    """A command that has ended: its exit code, and what it printed."""

    code: int
    output: str


class Program:
    """A program that was started on a machine."""

    def __init__(self, machine: "Machine", pid: int, log: Path) -> None:
        self._machine = machine
        self.pid = pid
        """As the machine numbers it."""
        self._log = log

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        code: int | None = self._machine.ask(do="ended", pid=self.pid)["status"]
        return code

    def wait(self, timeout_s: float) -> Ended:
        deadline = time.monotonic() + timeout_s
        while (code := self.poll()) is None:
            assert time.monotonic() < deadline, f"not within {timeout_s} s:\n{self.output}"
            time.sleep(0.05)
        return Ended(code, self.output)


class Machine:
    """One machine, through the keeper that runs there."""

    def __init__(self, control: socket.socket, address: str, name: str, folder: Path) -> None:
        self.address = address
        self.name = name
        self.folder = folder
        """Holds its ``/tmp`` and the logs of what was started there, as the test sees them."""
        self._control = control
        self._lock = threading.Lock()
        self._programs = 0

    def ask(self, fds: Sequence[int] = (), **request: Any) -> dict[str, Any]:
        return self._asked(fds, request)[0]

    def _asked(
        self, fds: Sequence[int], request: Mapping[str, Any]
    ) -> tuple[dict[str, Any], list[int]]:
        with self._lock:
            socket.send_fds(self._control, [json.dumps(request).encode()], list(fds))
            data, passed, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES, 8)
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, f"machine {self.name} is off")
        reply = json.loads(data)
        if "errno" in reply:
            raise OSError(reply["errno"], reply["error"])
        return reply, passed

    def connect(self, address: str, port: int) -> socket.socket:
        """A connection from this machine to somewhere on its network."""
        _, [number] = self._asked((), {"do": "connect", "address": address, "port": port})
        return socket.socket(fileno=number)

    def start(
        self,
        argv: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
        *,
        cwd: str | Path = "/",
        user: Mapping[str, Any] | None = None,
        inherited: Sequence[int] = (),
    ) -> Program:
        """Start a program; the word ``@FD`` is the first descriptor that it inherits."""
        self._programs += 1
        log = self.folder / f"{self.name}-{self._programs}.log"
        with log.open("wb") as output:
            reply = self.ask(
                (output.fileno(), *inherited),
                do="start",
                argv=[str(word) for word in argv],
                env={"PATH": PATH} if environment is None else dict(environment),
                cwd=str(cwd),
                user=dict(user or {}),
            )
        return Program(self, reply["pid"], log)

    def shell(self, command: str, environment: Mapping[str, str]) -> Program:
        """Start a command line, as SSH or a container's entry point does."""
        return self.start(["bash", "-c", command], environment, cwd=environment.get("HOME", "/"))

    def processes(self) -> list[psutil.Process]:
        """What runs on this machine, without its keeper."""
        keeper = self._keeper()
        return keeper.children(recursive=True) if keeper else []

    def _keeper(self) -> psutil.Process | None:
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                words = process.cmdline()
                if words[1:2] == [str(KEEPER)] and json.loads(words[-1])["name"] == self.name:
                    return process
        return None

    def listening(self) -> set[tuple[str, int]]:
        """The addresses and ports on which processes of this machine listen."""
        found: set[tuple[str, int]] = set()
        for process in self.processes():
            with suppress(OSError):
                found |= _listening(process.pid)
        return found

    def greet(self, keeper: Program | None = None) -> None:
        """Return when the machine is up."""
        try:
            self.ask(do="ended", pid=0)
        except ConnectionResetError as error:
            said = keeper.output if keeper else ""
            raise RuntimeError(f"machine {self.name} did not start: {said}") from error

    def logs(self) -> str:
        """What was printed here, the last of everything, to show when something fails."""
        found = sorted(self.folder.glob("*.log"))
        found += sorted(self.folder.glob("tmp/ray/session_2*/logs/serve/*.log"))
        return "\n".join(f"-- {path.name}\n{_end(path)}" for path in found)

    def off(self) -> None:
        """Switch it off: all that runs there is gone at once."""
        with self._lock:
            self._control.close()


class Network(Machine):
    """The network, which is a machine too: services may run on it."""

    def __init__(
        self, control: socket.socket, folder: Path, process: "subprocess.Popen[bytes]"
    ) -> None:
        super().__init__(control, "127.0.0.1", "network", folder)
        self._process = process
        self.machines: list[Machine] = []

    def add(
        self, number: int, name: str, binds: Mapping[Path, str], *, read_only: bool = False
    ) -> Machine:
        """Switch on a machine at 127.0.0.``number`` that sees these folders at these places.

        Args:
            read_only: nothing of its root file system can be written, but what is mounted can.
        """
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "tmp").mkdir(parents=True)
        address = f"127.0.0.{number}"
        hosts = folder / "hosts"
        hosts.write_text(f"127.0.0.1 localhost\n{address} {name}\n")
        needed = (ROOT, Path(sys.prefix), Path(sys.base_prefix))
        hidden = [path for path in needed if path.is_relative_to("/tmp")]
        setup = {
            "name": name,
            "hostname": name,
            "tmpfs": ["/dev/shm", "/srv"],
            "read_only": read_only,
            "binds": [
                (str(folder / "tmp"), "/tmp"),
                (str(hosts), "/etc/hosts"),
                *((str(path), str(path)) for path in hidden),
                *((str(path), place) for path, place in binds.items()),
            ],
        }
        ours, theirs = _sockets()
        with theirs:
            words = [sys.executable, str(KEEPER), FD, json.dumps(setup)]
            keeper = self.start(
                ["unshare", *ISOLATED, "--uts", "--ipc", *words], inherited=[theirs.fileno()]
            )
        machine = Machine(ours, address, name, folder)
        self.machines.append(machine)
        machine.greet(keeper)
        return machine

    def close(self) -> None:
        """Switch everything off, and return when nothing is left."""
        for machine in (*self.machines, self):
            machine.off()
        self._process.wait(300)


@contextmanager
def network() -> Iterator[Network]:
    """A network without machines. Where none can be made, the test skips; with CI=true it fails."""
    unshare = ["unshare", "--net", *ISOLATED]
    if os.geteuid() != 0:
        unshare += ["--user", "--map-current-user", "--keep-caps"]
    try:
        possible = (
            subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode == 0
        )
    except FileNotFoundError:
        possible = False
    if not possible:
        missing("the right to make namespaces (unshare)")
    with short_directory() as folder:
        folder.chmod(0o711)  # PostgreSQL runs as another user than root
        ours, theirs = _sockets()
        with theirs, (folder / "network.log").open("wb") as log:
            number = theirs.fileno()
            process = subprocess.Popen(
                [
                    *unshare,
                    sys.executable,
                    KEEPER,
                    str(number),
                    json.dumps({"name": "network", "loopback": True}),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[number],
            )
        made = Network(ours, folder, process)
        try:
            made.greet()
            yield made
        finally:
            made.close()


def _listening(pid: int) -> set[tuple[str, int]]:
    """Where a process listens, in its own network: psutil would look for it in the test's."""
    opened = {os.readlink(one) for one in Path(f"/proc/{pid}/fd").iterdir()}
    found = set()
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and f"socket:[{fields[9]}]" in opened:
                address, _, port = fields[1].partition(":")
                words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
                packed = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
                found.add((socket.inet_ntop(family, packed), int(port, 16)))
    return found


def _end(path: Path, count: int = 4_000) -> str:
    return path.read_text(errors="replace")[-count:]


def _sockets() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
