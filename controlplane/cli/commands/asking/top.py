"""``modelless top``: what runs and what is asked, on one screen that is drawn again and again."""

import os
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from controlplane.cli.gateway_client import Client, UrlOption, connect
from controlplane.cli.outcome import INTERRUPTED
from controlplane.cli.progress import termination_as_interrupt
from controlplane.cli.render import console
from controlplane.cli.screen.frame import frame
from controlplane.cli.screen.readings import Rates, Reading, read
from variants.errors import ModellessError
from variants.figures import counted

if TYPE_CHECKING:
    from controlplane.cli.screen.terminal import Screen

HIGH = 1_000
"""Of one frame no line is left out."""
APART_S = 1.0
"""Between the two looks of one frame: gateways and workers report about once a second."""

IntervalOption = Annotated[
    float, typer.Option("--interval", metavar="S", min=1, max=3_600, help="Between two looks.")
]
OnceOption = Annotated[bool, typer.Option("--once", help="Print what is there once.")]


def top(interval: IntervalOption = 1.0, once: OnceOption = False, url: UrlOption = "") -> None:
    """Watch what runs: whether all is as planned, what is asked and answered, how busy workers are.

    The screen is drawn again each second; q or Ctrl-C ends it. Where it is no terminal, it prints
    one frame with nothing cut, as with --once, which takes a second: rates need two looks.

    NOW is of the last 10 seconds, all else of what is asked is of the last minute.
    """
    with connect(url) as client:
        first = read(client, time.monotonic())
        if once or not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
            rates = Rates()
            rates.add(first)
            time.sleep(APART_S)
            last = read(client, time.monotonic())
            rates.add(last)
            for line in frame(last, rates, datetime.now(UTC), console().width, HIGH):
                typer.echo(line)
            return
        watch = _Watch(client, first, interval)
        try:
            with termination_as_interrupt():
                watch.go_on()
        except KeyboardInterrupt:
            looks = counted(watch.looks, "look")
            print(f"interrupted: {looks} at {client.url}; nothing was changed", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None


class _Watch:
    """Looks again and again, and draws what it sees."""

    def __init__(self, client: Client, first: Reading, interval_s: float) -> None:
        self._client = client
        self._reading = first
        self._interval_s = interval_s
        self._rates = Rates()
        self._rates.add(first)
        self._stale = ""
        self.looks = 1

    def go_on(self) -> None:
        """Until somebody presses q.

        Raises:
            KeyboardInterrupt: it was interrupted; the terminal is as it was.
        """
        from controlplane.cli.screen.terminal import Screen, Woken

        with Screen() as screen:
            while True:
                self._draw(screen)
                due_s = self._reading.at_s + self._interval_s
                if self._stale:
                    due_s = time.monotonic() + self._interval_s
                while (woken := screen.wait(due_s - time.monotonic())) is Woken.RESIZED:
                    self._draw(screen)
                if woken is Woken.QUIT:
                    return
                self._look()

    def _look(self) -> None:
        self.looks += 1
        try:
            self._reading = read(self._client, time.monotonic())
        except ModellessError as error:
            self._stale = error.message  # what was seen last stays, and it is tried again
            return
        self._stale = ""
        self._rates.add(self._reading)

    def _draw(self, screen: "Screen") -> None:
        width, height = screen.size()
        now = datetime.now(UTC)
        screen.draw(frame(self._reading, self._rates, now, width, height, stale=self._stale))
