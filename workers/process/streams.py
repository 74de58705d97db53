"""Standard streams that outlive a full disk.

Ray keeps what its processes print in files. On a full disk ``print`` raises there, and Ray ends the
process: a worker could never be started again until there is room. What cannot be printed is lost
instead. Ray's processes import this module before they take any work (``preload_python_modules``),
so importing it is what puts the streams in place.
"""

import logging
import sys
from contextlib import suppress
from typing import Any


class Forgiving:
    """A text stream that ignores failures to write; all else it leaves to the stream it wraps."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def forgive() -> None:
    """Put forgiving streams in the place of this process' own; a second call changes nothing."""
    if not isinstance(sys.stdout, Forgiving):
        sys.stdout = Forgiving(sys.stdout)
    if not isinstance(sys.stderr, Forgiving):
        sys.stderr = Forgiving(sys.stderr)
    # A record that cannot be written is not worth a traceback for each.
    logging.raiseExceptions = False


forgive()
