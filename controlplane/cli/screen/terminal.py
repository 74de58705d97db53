"""A terminal that is drawn upon: frames without flicker, and everything as it was afterwards.

Frames go to the terminal's other screen, so that what stood there before is there again in the end.
A frame is one write that goes over the one before; the screen is never cleared as a whole.
"""

import os
import select
import signal
import socket
import sys
import termios
import tty
from collections.abc import Sequence
from enum import Enum
from types import FrameType
from typing import Any, Self

ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"
"""The other screen, no cursor, and no second line for what is too long."""
LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
BEGIN, END = "\x1b[?2026h\x1b[H", "\x1b[?2026l"
"""A frame is shown when it is complete, by terminals that know this."""
CLEAR_LINE, CLEAR_BELOW = "\x1b[K", "\r\n\x1b[J"
"""From the cursor on. Behind a line as wide as the terminal the cursor stands on its last sign, so
lines are cleared before their text."""


class Woken(Enum):
    """Why a wait is over."""

    TIME = "time"
    RESIZED = "resized"
    QUIT = "quit"


class Screen:
    """The terminal of this process. Use it as a context, in the main thread."""

    def __init__(self) -> None:
        self._out = sys.stdout.fileno()
        self._keys: int | None = None
        self._attributes: list[Any] = []
        self._before: dict[signal.Signals, Any] = {}
        self._woken, self._waker = socket.socketpair()

    def __enter__(self) -> Self:
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number, handle in (
            (signal.SIGWINCH, self._resized),
            (signal.SIGTSTP, self._suspended),
        ):
            self._before[number] = signal.signal(number, handle)
        self._enter()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()
        signal.set_wakeup_fd(-1)
        for number, handle in self._before.items():
            signal.signal(number, handle)
        self._woken.close()
        self._waker.close()

    def _enter(self) -> None:
        if sys.stdin.isatty():
            self._keys = sys.stdin.fileno()
            self._attributes = termios.tcgetattr(self._keys)
            tty.setcbreak(self._keys)
        self._write(ENTER)

    def _leave(self) -> None:
        self._write(LEAVE)
        if self._keys is not None:
            termios.tcsetattr(self._keys, termios.TCSADRAIN, self._attributes)

    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        found = os.get_terminal_size(self._out)
        return max(1, found.columns), max(1, found.lines)

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines, in place of those before."""
        _, height = self.size()
        shown = "\r\n".join(CLEAR_LINE + line for line in lines)
        self._write(BEGIN + shown + (CLEAR_BELOW if len(lines) < height else "") + END)

    def wait(self, seconds: float) -> Woken:
        """Wait until so much time has passed, the size is another one, or somebody pressed q."""
        watched: list[Any] = [self._woken] if self._keys is None else [self._woken, self._keys]
        ready, _, _ = select.select(watched, (), (), max(0.0, seconds))
        if self._woken in ready:
            self._woken.recv(4_096)
            return Woken.RESIZED
        if ready and self._keys is not None:
            pressed = os.read(self._keys, 1_024)
            if not pressed:  # nobody is there any more
                self._keys = None
            return Woken.QUIT if b"q" in pressed.lower() else Woken.RESIZED
        return Woken.TIME

    def _write(self, text: str) -> None:
        # Not by way of Python's buffer: a signal's handler writes too.
        data = text.encode("utf-8", "replace")
        while data:
            data = data[os.write(self._out, data) :]

    def _resized(self, number: int, at: FrameType | None) -> None:
        """The wait that it ends is what draws anew."""

    def _suspended(self, number: int, at: FrameType | None) -> None:
        """Ctrl-Z: the shell gets its terminal as it was, and we ours when we go on."""
        self._leave()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._suspended)
        self._enter()
