"""The template of Ray's workers (``worker_template.py``), kept by the process that starts Ray."""

import contextlib
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

LAUNCHER = Path(__file__).with_name("worker_launcher.py")
TEMPLATE = Path(__file__).with_name("worker_template.py")
SERVE = Path(__file__).parent.parent / "bare_serve.py"
SOCKET = "workers.sock"
END_S = 5.0
RENEW_S = 60.0
"""It is started again at most so often: it may have been killed for want of memory."""


class TemplateProcess:
    """Started and ended; ``command`` is what a raylet starts instead of the interpreter."""

    def __init__(self, folder: Path) -> None:
        """
        Args:
            folder: for the socket, with a short path.
        """
        self._path = folder / SOCKET
        self._process: subprocess.Popen[bytes] | None = None
        self._environment: dict[str, str] = {}
        self._raylet: int | None = None
        self._started_at = 0.0

    def start(self, environment: dict[str, str]) -> None:
        """Start it, and return while it imports; launchers wait for it.

        Raises:
            OSError: the folder cannot be used, or the process cannot be started.
        """
        self._environment, self._started_at = environment, time.monotonic()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(self._path))
            self._path.chmod(0o600)
            listener.listen(64)
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    str(TEMPLATE),
                    str(listener.fileno()),
                    str(_default_worker()),
                    str(SERVE),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**environment, "OPENBLAS_NUM_THREADS": "1"},
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )

    def serve(self, raylet: int) -> None:
        """Have it import Ray's own part, for the workers of a raylet, by its process id."""
        self._raylet = raylet
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.write(f"{raylet}\n".encode())
                self._process.stdin.flush()

    def renew(self) -> bool:
        """Start it again where a signal has ended it; whether that was so.

        One that ended by itself could not be forked from, and would end again.
        """
        process = self._process
        if process is None or self._raylet is None or (process.poll() or 0) >= 0:
            return False
        if time.monotonic() - self._started_at < RENEW_S:
            return False
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        try:
            self.start(self._environment)
        except OSError:
            return False
        self.serve(self._raylet)
        return True

    @property
    def pid(self) -> int:
        """Of the process that was started."""
        assert self._process is not None
        return self._process.pid

    @property
    def command(self) -> list[str]:
        """Arguments of the interpreter before those of Ray's own program."""
        return ["-I", "-S", str(LAUNCHER), str(self._path)]

    def end(self) -> None:
        """End it; processes that were forked from it go on. An empty folder goes with it."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            self._process.terminate()
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # Ray keeps its logs there
            self._path.parent.rmdir()


def _default_worker() -> Path:
    spec = find_spec("ray")
    if spec is None or spec.origin is None:
        raise OSError("Ray is not installed")
    return Path(spec.origin).parent / "_private" / "workers" / "default_worker.py"
