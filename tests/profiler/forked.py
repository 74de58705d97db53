"""Sandboxes whose child is forked from a process that has imported what it needs.

Starting Python and importing is nearly all that a child with a small model does. The tests of
``profiler/sandbox``, and all commands that tests start, have children that are started afresh.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager
from functools import cache
from typing import IO

import pytest

from profiler.sandbox import sandbox
from tests.workers.forking import Begun, Server

MODULE = "profiler.sandbox.child"
SEARCHED = "PYTHONPATH"


class Forked:
    """A child, as ``subprocess.Popen`` shows one."""

    def __init__(self, begun: Begun, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.pid, self._ended = begun
        self.stdin: IO[bytes] | None = stdin
        self.stdout: IO[bytes] | None = stdout

    @property
    def returncode(self) -> int | None:
        return self._ended.result() if self._ended.done() else None

    def wait(self, timeout: float | None = None) -> int:
        try:
            return self._ended.result(timeout)
        except NotYet:
            raise subprocess.TimeoutExpired(MODULE, timeout or 0.0) from None


@contextmanager
def children_are_forked() -> Iterator[None]:
    """Every sandbox of this process that opens meanwhile has a child that is forked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox, "start", _start)
        yield


def _start(
    module: str, arguments: Sequence[str], environment: Mapping[str, str]
) -> sandbox.ChildProcess:
    assert module == MODULE
    _parent, memory_mib, threads, runtime, device = arguments
    server = _server(runtime, environment[SEARCHED])
    theirs_in, ours_in = os.pipe()
    ours_out, theirs_out = os.pipe()
    given = (str(server.pid), memory_mib, threads, runtime, device)
    asked = server.start((given, dict(environment)), [theirs_in, theirs_out])
    for one in (theirs_in, theirs_out):
        os.close(one)
    return Forked(asked.result(), os.fdopen(ours_in, "wb"), os.fdopen(ours_out, "rb"))


_servers: set[int] = set()


def servers() -> set[int]:
    """The processes that are forked; they are not of any test."""
    return set(_servers)


@cache
def _server(runtime: str, searched: str) -> Server:
    kept = {name: value for name, value in os.environ.items() if name in ("HOME", "PATH", "LANG")}
    found = Server("tests.profiler.forked", runtime, environment=kept | {SEARCHED: searched})
    _servers.add(found.pid)
    return found


def prepare(runtime: str) -> None:
    """Import what a child needs of its own, its back end, and what checks and builders import."""
    import onnx  # noqa: F401
    import onnxruntime.quantization  # noqa: F401

    from profiler.sandbox import child

    child.import_back_end(runtime)


def become(arguments: list[object], given: Sequence[int]) -> None:
    """Be a child, which reads from the first file and writes to the second."""
    from profiler.sandbox.child import main

    line, environment = arguments
    assert isinstance(line, list)
    assert isinstance(environment, dict)
    for ours, standard in zip(given, (0, 1), strict=True):
        os.dup2(ours, standard)
        os.close(ours)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [MODULE, *line]
    main()
