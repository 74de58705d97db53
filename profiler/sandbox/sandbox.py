"""A child process in which a foreign model is checked, built and run, with limits.

Whatever a model does to it (a crash, endless work, all the memory) ends the child and becomes one
sentence. The child is started afresh and never forked. Of this process's environment it gets only
the variables that ``_KEPT_ENVIRONMENT`` names and the paths that Python searches. It dies with this
process.
"""

import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Protocol, Self

from profiler.sandbox.calls import Announce
from profiler.sandbox.limits import SandboxLimits
from variants.errors import (
    InvalidArtifact,
    ModellessError,
    TrialKilled,
    TrialTimedOut,
    TrialTooLarge,
    VariantNotBuilt,
)
from workers.process.memory_kills import known_memory_kills

_ROOT = Path(__file__).resolve().parents[2]
_LONGEST_LINE = 1 << 24
_KEPT_ENVIRONMENT = (
    "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH",
    "PATH", "TMPDIR",
)  # fmt: skip
_LOOK_S = 0.25
"""How often the child's memory is looked at."""
_PAGE_BYTES = resource.getpagesize()
_ERRORS: Mapping[str, type[ModellessError]] = {
    "VariantNotBuilt": VariantNotBuilt,
    "TrialTooLarge": TrialTooLarge,
}


def ignored(done: int, total: int) -> None:
    """Nobody is told."""


class ChildProcess(Protocol):
    """A child, as ``subprocess.Popen`` shows one."""

    @property
    def pid(self) -> int: ...
    @property
    def stdin(self) -> IO[bytes] | None: ...
    @property
    def stdout(self) -> IO[bytes] | None: ...
    @property
    def returncode(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...


def start(module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> ChildProcess:
    """Run a module in an interpreter of its own, which leads a group of processes."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        process_group=0,  # compilers that a back end starts end with it
    )


class Sandbox:
    """Runs methods of ``profiler.sandbox.child`` in one child process.

    Use as a context manager: when it ends, the process is gone. After an error that ended the child
    no further call is possible.
    """

    def __init__(
        self,
        limits: SandboxLimits | None = None,
        *,
        threads: int = 1,
        runtime: str = "onnx",
        gpu: bool = False,
        module: str = "profiler.sandbox.child",
        kills: Callable[[], int | None] = known_memory_kills,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            threads: that compute in the child; each takes some address space.
            runtime: whose back end the child imports before its memory counts.
            gpu: whether the child uses a GPU.
            kills: how many processes were killed for want of memory so far, where that is known.
            clock_s: by which a call has its time.
        """
        self._limits = limits or SandboxLimits()
        self._runtime = runtime
        self._gpu = gpu
        self._threads = threads
        self._module = module
        self._kills = kills
        self._clock_s = clock_s
        self._kills_before: int | None = None
        self._process: ChildProcess | None = None
        self._buffer = b""

    @property
    def pid(self) -> int:
        """The process id of the child; 0 when there is none."""
        return self._process.pid if self._process else 0

    def __enter__(self) -> Self:
        self._buffer, self._kills_before = b"", self._kills()
        environment = {n: os.environ[n] for n in _KEPT_ENVIRONMENT if n in os.environ}
        # Runtimes and builders may be in packages that lie on the parent's own PYTHONPATH.
        parents = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join([str(_ROOT), *filter(None, parents)])
        environment["PYTHONSAFEPATH"] = "1"
        memory_mib, device = self._limits.memory_mib, "gpu" if self._gpu else "cpu"
        self._process = start(
            self._module,
            (str(os.getpid()), str(memory_mib), str(self._threads), self._runtime, device),
            environment,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def call(
        self,
        method: str,
        arguments: Mapping[str, Any],
        *,
        subject: str,
        announce: Announce = ignored,
    ) -> dict[str, Any]:
        """Run a method and return its result, plain JSON values both ways.

        ``subject`` is what the sentence of a failure begins with; ``announce`` gets progress,
        with which the time of the call begins anew.

        Raises:
            VariantNotBuilt: the child said so.
            TrialKilled: somebody else killed the child, as far as is known.
            TrialTimedOut: neither a result nor progress came in time.
            TrialTooLarge: it took more memory than it may, or than there was.
            InvalidArtifact: the child refused, failed, crashed, or went over a limit.
        """
        process = self._process
        if process is None or process.stdin is None:
            raise InvalidArtifact(f"{subject}: its trial process has ended")
        request = json.dumps({"method": method, "arguments": arguments}) + "\n"
        deadline = self._clock_s() + self._limits.time_s
        try:
            process.stdin.write(request.encode())
            process.stdin.flush()
            while True:
                reply = json.loads(self._line(process, deadline))
                if "progress" in reply:
                    done, total = reply["progress"]
                    announce(int(done), int(total))
                    deadline = self._clock_s() + self._limits.time_s
                    continue
                break
        except TimeoutError:
            self._end()
            raise TrialTimedOut(
                f"{subject}: its trial did not finish within {self._limits.time_s:,g} s and was"
                " stopped"
            ) from None
        except MemoryError:
            self._end()
            raise TrialTooLarge(
                f"{subject}: it needs more than the {self._limits.memory_mib:,g} MiB of a trial"
            ) from None
        except (EOFError, BrokenPipeError, ValueError, TypeError):
            raise self._post_mortem(subject) from None
        if "error" in reply:
            kind = _ERRORS.get(str(reply.get("kind")), InvalidArtifact)
            raise kind(f"{subject}: {_of_it(subject, str(reply['error']))}")
        result = reply.get("result")
        if not isinstance(result, dict):
            raise InvalidArtifact(f"{subject}: its trial process gave no result")
        return result

    def _line(self, process: ChildProcess, deadline: float) -> bytes:
        """The next line.

        Raises:
            TimeoutError: none came in time.
            MemoryError: the child takes too much.
            EOFError: it has ended.
        """
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                left_s = deadline - self._clock_s()
                if left_s <= 0:
                    raise TimeoutError
                if not selector.select(min(left_s, _LOOK_S)):
                    limits = self._limits
                    if _resident_mib(process.pid) > limits.memory_mib + limits.libraries_mib:
                        raise MemoryError
                    continue
                piece = os.read(descriptor, 65_536)
                if not piece:
                    raise EOFError
                self._buffer += piece
                if len(self._buffer) > _LONGEST_LINE:
                    raise ValueError("the child writes without end")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _post_mortem(self, subject: str) -> InvalidArtifact:
        process = self._process
        assert process is not None
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        code = process.returncode
        self._end()
        if code is None:
            return InvalidArtifact(f"{subject}: its trial process wrote what is no answer")
        if code == -signal.SIGKILL:
            killed = f"{subject}: its trial process was killed"
            before, now = self._kills_before, self._kills()
            if before is None or now is None:
                return TrialKilled(f"{killed}; whether memory ran out is not known")
            if now > before:
                return TrialTooLarge(f"{killed}, probably because memory ran out")
            return TrialKilled(f"{killed}, and the kernel tells of no want of memory")
        if code < 0:
            name = signal.Signals(-code).name
            return InvalidArtifact(f"{subject}: it crashed its trial process ({name})")
        return InvalidArtifact(
            f"{subject}: its trial process ended with code {code} and gave no answer"
        )

    def _end(self) -> None:
        """Kill the child if it runs, and wait until it is gone."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


def _resident_mib(pid: int) -> float:
    """Resident memory of a process; 0 when it has ended."""
    with suppress(OSError, IndexError):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * _PAGE_BYTES / 2**20
    return 0.0


def _of_it(subject: str, said: str) -> str:
    """What was said of a variant, behind its name and a colon: without its name once more."""
    first, _, rest = said.partition(" ")
    return f"it {rest}" if first.rpartition("/")[2] == subject else said
