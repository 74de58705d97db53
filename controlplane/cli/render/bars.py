"""WorkBar: how far long work is, on a terminal, and beneath it what it is at.

What it is at has a line of its own, because it is of any length: beside the bar it would push the
bar, the clock and the time that is left out of the terminal, and back with the next step.
"""

from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from controlplane.cli.render.words import printable

BAR_WIDTH = 30
INDENT = 4


class WorkBar(Progress):
    """A title, a bar, the time so far and the time that is left; then the step that runs."""

    def __init__(self, title: str, console: Console) -> None:
        super().__init__(
            TextColumn(" "),
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=BAR_WIDTH),
            TextColumn("{task.fields[so_far]}"),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[left]}[/]"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._work = self.add_task(title, total=None, so_far="", left="", at="")

    def show(self, done: int, total: int, at: str, *, so_far: str = "", left: str = "") -> None:
        """
        Args:
            done: of ``total``, which is 0 while it is not known.
            at: what is done now, of any length.
            so_far: how much that is, in words.
            left: how long the rest takes, in words.
        """
        self.update(
            self._work, completed=done, total=total or None, at=at, so_far=so_far, left=left
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        """The bar, and beneath it what the work is at."""
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            if at := task.fields["at"]:
                yield Padding(Text(printable(at), style="dim", overflow="fold"), (0, 0, 0, INDENT))
