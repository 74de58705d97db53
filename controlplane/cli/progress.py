"""Showing on standard error how far long work is, with the time that is left."""

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from controlplane.cli.outcome import INTERRUPTED
from controlplane.cli.render.words import left_words

if TYPE_CHECKING:
    from controlplane.building.types import Progress


class ProgressStyle(StrEnum):
    """How progress is shown on standard error."""

    AUTO = "auto"
    BAR = "bar"
    PLAIN = "plain"
    JSON = "json"
    NONE = "none"


ProgressOption = Annotated[ProgressStyle, typer.Option(help="How progress is shown.")]


AGAIN_S = 0.05
"""So long after an interrupt that Python ignored it is raised again."""
WITHIN_S = 10.0
"""What happens within a step stands in a log no more often than this."""
MANY_STEPS = 50
"""From so many steps on, their number says how long the rest takes."""
SMALL = ("artifacts", "check", "store")
"""Steps of which there are as many as artifacts, each over in milliseconds."""
LONGEST_SILENCE_S = 60.0
"""A log hears of a step in which nothing happens at least this often."""


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Let SIGTERM clean up as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        with _raised_again():
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _raised_again() -> Iterator[None]:
    """Raise an interrupt again that came where Python ignores what is raised.

    It does so in ``__del__`` and in what the garbage collector calls, prints ``Exception ignored
    in``, and goes on: the command would run to its end.
    """
    show = sys.unraisablehook

    def ignored(what: "sys.UnraisableHookArgs") -> None:
        if issubclass(what.exc_type, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        else:
            show(what)

    before = signal.signal(signal.SIGALRM, _interrupt)
    sys.unraisablehook = ignored
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = show
        signal.signal(signal.SIGALRM, before)


def say_waits() -> None:
    """Why nothing happens yet."""
    typer.echo("waiting: modelless is measuring a variant in the background", err=True)


@contextmanager
def interruptible(left: str | Callable[[], str]) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the command with its exit code.

    Args:
        left: what the interrupt leaves behind, for people: ``nothing was registered``; or what says
            so when it is interrupted.

    Raises:
        typer.Exit: it was interrupted.
    """
    try:
        with termination_as_interrupt():
            yield
    except KeyboardInterrupt:
        print(f"interrupted: {left if isinstance(left, str) else left()}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


def steps_of(style: ProgressStyle) -> int:
    """In how many steps to tell of work of any length: a bar moves by hundredths, and where each
    step is a line there are ten."""
    if style is ProgressStyle.AUTO:
        style = ProgressStyle.BAR if sys.stderr.isatty() else ProgressStyle.PLAIN
    return 10 if style is ProgressStyle.PLAIN else 100


@contextmanager
def shown(style: ProgressStyle) -> Iterator[Callable[["Progress"], None]]:
    """Something that shows progress on standard error."""
    if style is ProgressStyle.AUTO:
        style = ProgressStyle.BAR if sys.stderr.isatty() else ProgressStyle.PLAIN
    if style is ProgressStyle.BAR:
        with _bar() as show:
            yield show
    elif style is ProgressStyle.JSON:
        yield lambda one: print(json.dumps(asdict(one)), file=sys.stderr, flush=True)
    elif style is ProgressStyle.PLAIN:
        with _plain() as show:
            yield show
    else:
        yield lambda one: None


class PlainLines:
    """Progress for a log: a line for each step, and now and then one of what happens within it.

    Small steps of one kind are summed up: of those the first and the last have a line, and others
    now and then. A step that is silent says that it goes on, later and later.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._latest: Progress | None = None
        self._told = ""
        self._begun_s = self._told_s = 0.0
        self._silence_s = WITHIN_S

    def show(self, one: "Progress") -> None:
        with self._lock:
            before, self._latest = self._latest, one
            if before is None or one.done > before.done:
                self._begun_s = self._clock_s()
                if not self._is_summed_up(before, one):
                    self._tell(one, "")

    def _is_summed_up(self, before: "Progress | None", one: "Progress") -> bool:
        """Whether a line that is there or comes soon stands for this step."""
        small = before is not None and one.step == before.step and one.step in SMALL
        return small and one.done < one.total and self._clock_s() - self._told_s < WITHIN_S

    def look(self) -> None:
        """Tell what happens within the step, when it is time to."""
        with self._lock:
            one, now_s = self._latest, self._clock_s()
            if one is None or one.done >= one.total:
                return
            if one.message != self._told:
                self._silence_s = WITHIN_S
            if now_s - self._told_s >= self._silence_s:
                later_s = min(2 * self._silence_s, LONGEST_SILENCE_S)
                self._tell(one, f" ({now_s - self._begun_s:,.0f} s so far)")
                self._silence_s = later_s

    def _tell(self, one: "Progress", more: str) -> None:
        self._told, self._told_s, self._silence_s = one.message, self._clock_s(), WITHIN_S
        print(f"[{one.done}/{one.total}] {one.message}{more}", file=sys.stderr, flush=True)


@contextmanager
def _plain() -> Iterator[Callable[["Progress"], None]]:
    lines, over = PlainLines(), threading.Event()

    def look() -> None:
        while not over.wait(1.0):
            lines.look()

    watching = threading.Thread(target=look, name="progress", daemon=True)
    watching.start()
    try:
        yield lines.show
    finally:
        over.set()
        watching.join()


@contextmanager
def _bar() -> Iterator[Callable[["Progress"], None]]:
    from rich.console import Console

    from controlplane.cli.render.bars import WorkBar

    began_s = time.monotonic()
    with WorkBar("", Console(stderr=True)) as bar:

        def show(one: "Progress") -> None:
            # Of few steps no time that is left is told by their number: they differ too much in
            # length, and say themselves how long they take.
            many = one.total >= MANY_STEPS
            left = left_words(one.done, one.total, time.monotonic() - began_s) if many else ""
            share = f"{100 * one.done // one.total} %" if many else f"{one.done} of {one.total}"
            bar.show(one.done, one.total, one.message, so_far=share, left=left)

        yield show
