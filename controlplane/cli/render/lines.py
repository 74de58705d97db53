"""The terminal, or the pipe in its place, and what is printed that is no table."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from controlplane.cli.render.words import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def print_grid(screen: "Console", grid: "Table") -> None:
    """Print a grid; a pipe gets no blanks at the ends of lines."""
    if screen.is_terminal:
        screen.print(grid)
        return
    with screen.capture() as shown:
        screen.print(grid)
    print("\n".join(line.rstrip() for line in shown.get().splitlines()))


def details(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one pair on a line."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(name, Text(printable(value)))
    print_grid(console(), grid)


def note(sentence: str) -> None:
    """Print what a table means; a pipe gets it in one line."""
    screen = console()
    screen.print(sentence, style="dim", soft_wrap=not screen.is_terminal, markup=False)


def hanging(screen: "Console", mark: str, sentence: str, style: str = "") -> None:
    """Print a sentence behind its mark, both in Rich's markup; what goes on stands below itself.

    A pipe gets one line.
    """
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    head = Text.from_markup(mark, emoji=False)
    text = Text.from_markup(sentence, style=style, emoji=False)
    room = screen.width - cell_len(head.plain) - 1
    if not screen.is_terminal or (text.cell_len <= room and "\n" not in text.plain):
        screen.print(Text.assemble(head, " ", text), soft_wrap=True)
        return
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(head, text)
    screen.print(grid)


def console() -> "Console":
    """A terminal's width is kept; a pipe gets whole rows."""
    from rich.console import Console

    here = Console(highlight=False)
    return here if here.is_terminal else Console(highlight=False, width=1_000)
