"""Commands that go on when nobody reads what they say any more.

`modelless upgrade 2>&1 | head` closes the pipe after ten lines. Rich and Typer end a command whose
output has gone, which is right for one that only looks. One that replaces what serves would stop in
the middle of it.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO


class LastingStream:
    """A stream whose file becomes ``/dev/null`` when its reader has gone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or drop the text."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._discard()
            return len(text)

    def flush(self) -> None:
        """Flush; what the stream still holds when its reader has gone is dropped."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._discard()

    def _discard(self) -> None:
        """Whoever writes to this file from now on, a library or a child, writes to nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, self._stream.fileno())
        finally:
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def outliving_its_output() -> Iterator[None]:
    """Go on in silence when the reader of standard output or standard error goes away."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = LastingStream(before[0]), LastingStream(before[1])
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before
