"""What ``modelless up`` runs: the embedded services, Ray, the applications, until told to stop.

One process owns them all. It holds a lock in the state directory while it lives, writes down the
processes that it started, and leaves none behind; a successor ends what a killed one left.
"""

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import psutil

from controlplane.cluster import deploy, ray_dir, start_ray, stop_ray
from controlplane.gateway import bind
from controlplane.live import LiveState
from controlplane.presence import base_url, read_state, state_path, write_state
from controlplane.settings import Settings
from controlplane.valkey import EmbeddedValkey
from variants.errors import ClusterUnavailable, Conflict, InvalidInput

READY_S = 60.0
STOP_S = 40.0
WATCH_S = 1.0

Say = Callable[[str], None]
Step = Callable[[str], "contextlib.AbstractContextManager[Callable[[str], None]]"]
"""Opens a step of the start-up; what it yields takes the sentence that ends it."""


class Supervisor:
    """Starts everything in order, watches it, and stops everything in reverse."""

    def __init__(self, settings: Settings, step: Step, say: Say) -> None:
        self._settings = settings
        self._step = step
        self._show = say
        self._valkey: EmbeddedValkey | None = None
        self._ray = False
        self._stop = threading.Event()
        self._interrupts = 0
        self._lock: IO[str] | None = None
        self._said = ""
        self._pids: set[tuple[int, float]] = set()
        # What this process had started before is somebody else's business.
        self._others = set(descendants())

    # -- start ----------------------------------------------------------------------------------

    def claim(self) -> None:
        """Take the state directory for this process and clear what a killed one left.

        Raises:
            Conflict: another process has it, or the port is taken.
            InvalidInput: the directory cannot be used.
        """
        settings = self._settings
        prepare(settings)
        try:
            lock = _take(settings.run_dir / "up.lock")
        except OSError as error:
            raise InvalidInput(
                f"{settings.run_dir} cannot be locked: {error.strerror}; set MODELLESS_STATE_DIR"
            ) from error
        if lock is None:
            owner = read_state(settings)
            where = f" at {owner['url']}" if owner else ""
            pid = f" (process {owner['pid']})" if owner else ""
            raise Conflict(f"modelless is already running{where}{pid}; `modelless down` stops it")
        self._lock = lock
        left = clear_leftovers(settings)
        if left:
            self._say(f"ended {left} processes that an earlier, killed run had left")
        clear_files(settings)
        try:
            bind(settings, alone=True).close()
        except OSError as error:
            self._release()
            raise Conflict(
                f"{settings.host}:{settings.port} cannot be used: {error.strerror};"
                " choose another port with --port or MODELLESS_PORT"
            ) from error
        # From here on `modelless down` has to find us, also while examples are being made.
        write_state(settings, os.getpid(), self._pids)
        signal.signal(signal.SIGTERM, _interrupted)

    def start(self) -> None:
        """Start the live state, Ray and the applications; return when queries are answered.

        Raises:
            ClusterUnavailable: something did not start; the sentence says what.
            StateUnavailable: the live state that the settings name does not answer.
        """
        settings = self._settings
        with self._step("Live state") as done:
            if settings.redis_url:
                # Later it may go and come; at the start nobody would learn where the workers are.
                asyncio.run(_reach(settings.redis_url))
                done("the one that MODELLESS_REDIS_URL names")
            else:
                self._valkey = EmbeddedValkey(settings.run_dir)
                self._valkey.start()
                self._remember()
                done("embedded Valkey on a private socket")
        # A thread of Ray's prints what happens to its processes, in many words, on standard output.
        sys.stdout = (settings.run_dir / "ray.log").open("w", buffering=1)
        with self._step("Ray") as done:
            self._ray = True
            start_ray(settings)
            self._remember()
            done(_ray_words(settings))
        signal.signal(signal.SIGTERM, self._interrupt)
        signal.signal(signal.SIGINT, self._interrupt)
        with self._step("Ray Serve") as done:
            deploy(settings)
            self._remember()
            workers = "1 worker" if settings.workers == 1 else f"{settings.workers} workers"
            done(f"gateway, control loop, {workers} {settings.device_kind}")

    def wait_for_variants(self, expected: int) -> None:
        """Wait until the plan is loaded: all ``expected`` variants, or what memory holds.

        Raises:
            ClusterUnavailable: not even one was loaded.
            KeyboardInterrupt: Ctrl-C, SIGTERM or `modelless down` ended the start.
        """
        if expected and not self._stop.is_set():
            with self._step("Variants") as done:
                ready = self._until_loaded(expected)
                done("interrupted" if self._stop.is_set() else f"{ready} of {expected} loaded")
        if self._stop.is_set():
            raise KeyboardInterrupt

    def _until_loaded(self, expected: int) -> int:
        from httpx import Client, HTTPError

        deadline = time.monotonic() + READY_S
        ready, settled = 0, 0
        headers = {}
        if self._settings.api_token:
            headers["Authorization"] = f"Bearer {self._settings.api_token}"
        with Client(base_url=base_url(self._settings), timeout=5, headers=headers) as client:
            while time.monotonic() < deadline and not self._stop.is_set():
                before = ready
                try:
                    index = client.post("/v2/repository/index").json()
                except (HTTPError, ValueError):
                    time.sleep(0.1)
                    continue
                ready = sum(row["state"] == "READY" for row in index)
                if ready >= expected:
                    break
                # Memory may not hold them all: three seconds without news is the end of loading.
                settled = settled + 1 if ready and ready == before else 0
                if settled >= 30:
                    break
                time.sleep(0.1)
        if not ready and not self._stop.is_set():
            raise ClusterUnavailable(
                f"no variant was loaded within {READY_S:.0f} s;"
                f" the logs are in {logs_dir(self._settings)}"
            )
        return ready

    # -- watch ----------------------------------------------------------------------------------

    def watch(self) -> None:
        """Stay until Ctrl-C, SIGTERM or `modelless down`; start a dead Valkey again.

        Raises:
            ClusterUnavailable: Ray has died; nothing can be saved.
        """
        self._write_down()
        raylets = self._raylets()
        while not self._stop.wait(WATCH_S):
            self._remember()
            if self._valkey is not None and not self._valkey.alive():
                self._restart_valkey(self._valkey)
            if raylets and not any(is_alive(process) for process in raylets):
                raise ClusterUnavailable(
                    f"Ray has died; its logs are in {logs_dir(self._settings)}"
                )

    def _restart_valkey(self, valkey: EmbeddedValkey) -> None:
        """Start it again; queries go on without it, so a failure is told and tried again."""
        try:
            valkey.start()
        except ClusterUnavailable as error:
            if error.message != self._said:
                self._say(f"{error.message}; queries go on without it, starting it is tried again")
            self._said = error.message
        else:
            self._remember()
            self._said = ""
            self._say("the embedded Valkey died; it was started again, nothing is lost")

    def _raylets(self) -> list[psutil.Process]:
        if self._settings.ray_address:
            return []
        return [p for p in descendants() if "raylet" in _name(p)]

    def _interrupt(self, _signal: int, _frame: object) -> None:
        self._stop.set()
        self._interrupts += 1
        if self._interrupts >= 2:
            self._say("killed on request; queries in flight are lost")
            self._kill_rest()
            os._exit(130)

    # -- stop -----------------------------------------------------------------------------------

    @property
    def has_begun(self) -> bool:
        """Whether there is anything to stop."""
        return self._ray or self._valkey is not None

    def stop(self) -> None:
        """Stop everything in reverse: workers finish their queries, then the services end."""
        self._stop.set()
        with contextlib.suppress(psutil.Error):
            self._remember()
        if self._ray:
            watchdog = threading.Timer(STOP_S, self._kill_rest)
            watchdog.daemon = True
            watchdog.start()
            try:
                stop_ray()
            except Exception as error:
                self._say(f"Ray did not end by itself ({error}); its processes are ended")
            watchdog.cancel()
        if self._valkey is not None:
            self._valkey.stop()
        self._kill_rest()
        self._release()

    def _release(self) -> None:
        """Give the state directory free."""
        if self._lock is not None:
            state_path(self._settings).unlink(missing_ok=True)
            self._lock.close()
            self._lock = None

    def _remember(self) -> None:
        """Note all processes below this one, so that none can be forgotten."""
        known: set[tuple[int, float]] = set()
        for process in descendants():
            if process in self._others:
                continue
            with contextlib.suppress(psutil.Error):  # it has just ended
                known.add((process.pid, process.create_time()))
        if not known <= self._pids:
            # Those that lost their parent are no descendants any more, and still ours to end.
            self._pids = known | {(pid, at) for pid, at in self._pids if psutil.pid_exists(pid)}
            self._write_down()

    def _write_down(self) -> None:
        """A disk that is full must neither end what runs nor keep it from being stopped."""
        try:
            write_state(self._settings, os.getpid(), self._pids)
        except OSError as error:
            self._say(f"what runs here cannot be written down: {error.strerror}")

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a log on a full disk, a terminal that is gone
            self._show(text)

    def _kill_rest(self) -> None:
        end_processes(self._pids, wait_s=3.0)


# -- the state directory ----------------------------------------------------------------------


def prepare(settings: Settings) -> None:
    """Make the state directory, the channel secret and Ray's token.

    Raises:
        InvalidInput: the directory cannot be made or written.
    """
    from workers.secret import ensure_secret

    try:
        settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        settings.run_dir.mkdir(exist_ok=True, mode=0o700)
        ensure_secret(settings.secret_path)
        token = settings.state_dir / "ray.token"
        if not token.exists():
            with os.fdopen(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as f:
                f.write(os.urandom(32).hex())
    except OSError as error:
        raise InvalidInput(
            f"the state directory {settings.state_dir} cannot be used: {error.strerror};"
            " set MODELLESS_STATE_DIR"
        ) from error
    excess = path_excess(settings)
    if excess > 0:
        raise InvalidInput(
            f"the state directory's path is {excess} characters too long for Unix sockets;"
            " set MODELLESS_STATE_DIR to a shorter one"
        )


def path_excess(settings: Settings) -> int:
    """By how many characters the state directory's path is too long for Unix sockets in it."""
    return len(str(settings.run_dir / "w-cpu-256-xxxxxxxx.sock")) - 107


def logs_dir(settings: Settings) -> Path:
    return ray_dir(settings) / "session_latest" / "logs"


def _take(path: Path, patience_s: float = 0.3) -> IO[str] | None:
    """The lock file, held; None when another process keeps it.

    `modelless status` takes it for a moment to look, and must not make a start fail.
    """
    lock = path.open("a+")
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                lock.close()
                return None
            time.sleep(0.02)
        else:
            return lock


def clear_leftovers(settings: Settings) -> int:
    """End what a killed run had started and is still there; return how many."""
    state = read_state(settings)
    if state is None:
        return 0
    processes = state.get("processes")
    assert isinstance(processes, list)
    ended = end_processes({(int(pid), float(at)) for pid, at in processes}, wait_s=3.0)
    state_path(settings).unlink(missing_ok=True)
    return ended


def clear_files(settings: Settings) -> None:
    """Remove the sockets of killed workers, and the logs of all Ray sessions but the last."""
    for socket in settings.run_dir.glob("w-*.sock"):
        with contextlib.suppress(OSError):
            socket.unlink()
    for session in sorted(ray_dir(settings).glob("session_2*"))[:-1]:  # named by date
        shutil.rmtree(session, ignore_errors=True)


def descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def end_processes(processes: set[tuple[int, float]], *, wait_s: float) -> int:
    """End these processes if they are still the ones we knew; return how many there were.

    A pid may have been given to somebody else since: the time of its creation tells.
    """
    found: list[psutil.Process] = []
    for pid, created in processes:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if abs(process.create_time() - created) < 0.5 and is_alive(process):
                found.append(process)
    for process in found:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    _, alive = psutil.wait_procs(found, timeout=wait_s)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=2)
    return len(found)


def is_alive(process: psutil.Process) -> bool:
    """Whether it runs still; one that ended and was not waited for does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _interrupted(_signal: int, _frame: object) -> None:
    """Before anything else handles it, SIGTERM ends the start-up as Ctrl-C does."""
    raise KeyboardInterrupt


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return ""


def _ray_words(settings: Settings) -> str:
    from importlib.metadata import version

    where = settings.ray_address or f"{settings.worker_cores * settings.workers} cores, loopback"
    return f"{version('ray')}, {where}, token authentication"


async def _reach(url: str) -> None:
    """Return when the live state answers."""
    live = LiveState(url)
    try:
        await live.ping()
    finally:
        await live.close()
