"""Showing on standard error how far long work is, with the time that is left."""

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from controlplane.cli import render
from controlplane.cli.outcome import INTERRUPTED

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
def interruptible(left: str) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the command with its exit code.

    Args:
        left: what the interrupt leaves behind, for people: ``nothing was registered``.

    Raises:
        typer.Exit: it was interrupted.
    """
    try:
        with termination_as_interrupt():
            yield
    except KeyboardInterrupt:
        print(f"interrupted: {left}", file=sys.stderr)
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
        yield _plain()
    else:
        yield lambda one: None


def _plain() -> Callable[["Progress"], None]:
    """One line for each step, and none for what happens within it."""
    shown = [-1]

    def show(one: "Progress") -> None:
        if one.done > shown[0]:
            shown[0] = one.done
            print(f"[{one.done}/{one.total}] {one.message}", file=sys.stderr, flush=True)

    return show


@contextmanager
def _bar() -> Iterator[Callable[["Progress"], None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Display

    with Display(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TimeElapsedColumn(),
        TextColumn("[dim]left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as display:
        row = display.add_task("starting", total=None)
        yield lambda one: display.update(
            row, description=render.printable(one.message), completed=one.done, total=one.total
        )
