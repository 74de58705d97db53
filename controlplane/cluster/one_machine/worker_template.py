"""A process that has imported Ray and Ray Serve, from which Ray's workers are forked.

``python worker_template.py LISTENER default_worker.py bare_serve.py``, with a listening Unix socket
at the file number and standard input open for as long as it is wanted. Each of Ray's processes
imports Ray and Serve, which takes more than a second of processor; here it is done once, while
Ray's own servers start, and what was imported is memory that all of them share. Decision 24 has
what that saves.

Nothing of the project's own stays imported, so what is forked runs the sources as they are then.
When packages were installed or removed since, it begins anew. There is one thread only, which is
what makes forking safe: none can hold a lock that the fork would wait for. Two forks must not draw
the same random ids, which is tried before the first. Where no process can be forked, the launcher
(``worker_launcher.py``) becomes one, as Ray starts it.
"""

import contextlib
import fcntl
import gc
import importlib
import marshal
import os
import resource
import runpy
import select
import signal
import socket
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

TAKEN, GO, STARTED = b"t", b"g", b"s"
REQUEST_S = 5.0
"""How long a launcher may take for its request, which it has ready."""
LONGEST = 8 * 2**20
"""Bytes of a request; the kernel allows arguments and environment of 2 MiB by default."""
MOST_FILES = 253
BEFORE_RAY = (
    "numpy",
    "fastapi",
    "uvicorn",
    "requests",
    "jsonschema",
    "yaml",
    "grpc.aio",
    "sqlalchemy",
    "redis.asyncio",
    "pydantic_settings",
)
"""What most processes import of other packages than Ray, as far as it takes long."""
OF_A_WORKER = {b"RAY_JOB_ID", b"RAY_LD_PRELOAD_ON_WORKERS"}
"""What stands in a worker's environment, and need not stand here."""
NO_JOB = "f" * 8
"""What a raylet calls the job of workers that it starts ahead: they learn it with their first task.
All that are forked do."""
HIGH = 512
"""Where files that arrive are kept until they get their own numbers, which are lower."""


@dataclass(slots=True, kw_only=True)
class Request:
    """A launcher's process, and the files that it had open, in the order of their numbers."""

    said: dict[str, Any]
    held: list[int]

    def close(self) -> None:
        for file in self.held:
            os.close(file)
        self.held = []


class Settings:
    """How Ray is set up here."""

    def __init__(
        self, environment: Iterable[tuple[bytes, bytes]], *, of_import: set[bytes]
    ) -> None:
        """
        Args:
            of_import: the names that importing Ray has set, as it does where nobody has set them.
        """
        self._all = _of_ray(environment)
        self._of_import = {name: self._all[name] for name in of_import & self._all.keys()}

    def forget_import(self) -> None:
        """Take what importing Ray has set out of the environment."""
        for name in self._of_import:
            del os.environb[name]

    def are_of(self, environment: Mapping[bytes, bytes]) -> bool:
        """Whether Ray would be set up by this environment as it was here."""
        return self._of_import | _of_ray(environment.items()) == self._all


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    worker, serve = sys.argv[2], sys.argv[3]
    sys.path[0] = os.path.dirname(worker)  # as for the program that will be run
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it has begun anew
    before = _installed()
    for name in BEFORE_RAY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # Ray's core reads its environment as soon as its library is loaded, and never again.
    raylet = os.environ.get("RAY_RAYLET_PID") or sys.stdin.readline().strip()
    if not raylet:
        return
    os.environ.update({"RAY_RAYLET_PID": raylet, "RAY_JOB_ID": NO_JOB})
    given = set(os.environb)
    runpy.run_path(worker, run_name="ray_default_worker")
    with _no_random_ids():
        runpy.run_path(serve, run_name="bare_serve")
    gc.collect()
    gc.freeze()  # so that the collector does not write to what is shared
    if _threads() > 1 or _random_id() == _random_id():
        return
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them: Ray asks by their ids
    settings = Settings(os.environb.items(), of_import=set(os.environb) - given)
    request = _requested(listener, before, settings)
    if request is not None:
        _become(request)


@contextlib.contextmanager
def _no_random_ids() -> Iterator[None]:
    """While this is entered, classes of actors get ids without Ray's generator of random numbers.

    Serve has such classes. The generator is seeded when it is used first, in each process that is
    forked before; afterwards all that are forked would call different things by the same ids.
    """
    from ray import actor

    made = actor.ActorClassID

    class Id:
        @staticmethod
        def from_random() -> Any:
            return made(os.urandom(made.size()))

    actor.ActorClassID = Id
    try:
        yield
    finally:
        actor.ActorClassID = made


def _random_id() -> bytes:
    """What a process that is forked now would call the first thing that it names."""
    from ray._raylet import ObjectID

    read, write = os.pipe()
    forked = os.fork()
    if not forked:
        os.write(write, ObjectID.from_random().binary())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as file:
        found = file.read()
    os.waitpid(forked, 0)
    return found


def _requested(listener: socket.socket, before: object, settings: Settings) -> Request | None:
    """Fork a process for each request. Returns the request in it, and None here, when all ends."""
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            return None
        with contextlib.suppress(OSError, ValueError, EOFError, TypeError, KeyError):
            asked, _ = listener.accept()
            with asked:
                if not _own(asked):
                    continue
                if _installed() != before:
                    settings.forget_import()
                    _begin_anew(listener)
                request, forked = _read(asked), False
                try:
                    forked = settings.are_of(request.said["environment"]) and _forked(asked)
                finally:
                    if not forked:
                        request.close()
                if forked:
                    listener.close()
                    return request


def _forked(asked: socket.socket) -> bool:
    """Fork a process where the launcher still waits for one; whether this is it."""
    asked.sendall(TAKEN)
    if asked.recv(1) != GO or os.fork():
        return False
    try:
        asked.sendall(STARTED)
    except OSError:  # the launcher has ended, so nobody wants this process
        os._exit(1)
    return True


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _own(asked: socket.socket) -> bool:
    """Whether the same user asks."""
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(user == os.getuid())


def _installed() -> object:
    """What differs once a package was installed, removed or replaced."""
    times = []
    for place in sys.path:
        with contextlib.suppress(OSError):
            if place.endswith("-packages"):
                times.append((place, os.stat(place).st_mtime_ns))
    return times


def _of_ray(environment: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    ours = {name: value for name, value in environment if name.startswith(b"RAY_")}
    return {name: value for name, value in ours.items() if name not in OF_A_WORKER}


def _begin_anew(listener: socket.socket) -> NoReturn:
    """With the packages that are installed now. Who has asked starts its process by itself."""
    os.set_inheritable(listener.fileno(), True)
    os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 - this very program


def _read(asked: socket.socket) -> Request:
    asked.settimeout(REQUEST_S)
    head, arrived, _, _ = socket.recv_fds(asked, 4, MOST_FILES)
    request = Request(said={}, held=[])
    for file in arrived:
        request.held.append(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, HIGH))
        os.close(file)
    try:
        size = int.from_bytes(head, "big")
        if len(head) < 4 or size > LONGEST:
            raise ValueError("not a launcher's")
        data = bytearray()
        while len(data) < size:
            piece = asked.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        request.said = marshal.loads(bytes(data))  # noqa: S302 - a socket of this user's own
    except BaseException:
        request.close()
        raise
    return request


def _become(request: Request) -> None:
    """Go on as the launcher's process would: runs Ray's program, which ends this one."""
    said = request.said
    for held, number in zip(request.held, said["files"], strict=True):
        os.dup2(held, number)
    request.close()
    if said["leads_group"]:
        os.setpgid(0, 0)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(said["oom_score_adj"])
    for limit, soft, hard in said["limits"]:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(limit, (soft, hard))
    os.environ.clear()
    os.environb.update(said["environment"])
    os.chdir(said["folder"])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for ignored in said["ignored"]:
        signal.signal(ignored, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, said["blocked"])
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()  # Python's own generator does so by itself
    own = said["arguments"]
    sys.argv = own[next(at for at, word in enumerate(own) if not word.startswith("-")) :]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
