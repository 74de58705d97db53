"""Tables for people: columns with their units, numbers aligned."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from controlplane.cli.render.lines import console, print_grid
from controlplane.cli.render.words import printable

if TYPE_CHECKING:
    from rich.console import Console


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    empty: str,
    alike: Sequence[str] = (),
    spare: Sequence[str] = (),
) -> Sequence[str]:
    """Print rows below their columns; a column whose name starts with ``>`` is right-aligned.

    On a terminal that is too narrow for them a last column of sentences goes below the others;
    where these do not fit either, each row is a paragraph. A pipe or a file gets one line for each
    row, however long, and one with the columns' names, for who searches and counts lines.

    Args:
        alike: columns that are told below the table there, where all their cells are the same.
        spare: columns that are left out there then, as many as it takes, the first first.

    Returns:
        the columns that were left out.
    """
    screen = console()
    cells = [[printable(cell) for cell in row] for row in rows]
    if not cells:
        screen.print(empty, markup=False)
        return ()
    left_out: Sequence[str] = ()
    if screen.is_terminal:
        all_columns, all_cells = columns, cells
        same = [
            column
            for column in alike
            if column in columns and len({row[columns.index(column)] for row in cells}) == 1
        ]
        columns, cells, left_out = _unbroken(columns, cells, same, screen.width) or _fitting(
            columns, cells, dict.fromkeys((*same, *spare)), screen.width
        )
    _lay_out(screen, columns, cells)
    if left_out:
        first = dict(zip(all_columns, all_cells[0], strict=True))
        told = {name: cell for name, cell in first.items() if name in left_out and name in same}
        _say_left_out(screen, told, [column for column in left_out if column not in told])
    return left_out


def fits(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether a table is one here, and no paragraphs."""
    screen = console()
    return (
        not screen.is_terminal
        or _narrowest(columns, rows) <= screen.width
        or _fits_without_prose(columns, rows, screen.width)
    )


def _say_left_out(screen: "Console", same: Mapping[str, str], others: Sequence[str]) -> None:
    """What a terminal had no room for."""
    told = {column: cell for column, cell in same.items() if cell not in ("", "-")}
    said = [f"{column.removeprefix('>')} {cell}" for column, cell in told.items()]
    names = [column.removeprefix(">") for column in others]
    sentences = [
        *([f"In all rows: {', '.join(said)}."] if said else []),
        *([f"A wider terminal also shows {', '.join(names)}."] if names else []),
    ]
    if sentences:
        screen.print()
        screen.print(" ".join(sentences), style="dim", markup=False)


def _lay_out(screen: "Console", columns: Sequence[str], cells: list[list[str]]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    names = [column.removeprefix(">") for column in columns]
    if screen.is_terminal and _narrowest(columns, cells) > screen.width:
        if _fits_without_prose(columns, cells, screen.width):
            _prose_below(screen, columns, cells)
        else:
            for row in cells:
                _paragraph(screen, names, row)
        return
    if not screen.is_terminal:
        whole_rows = [[cell.replace("\n", " ") for cell in row] for row in cells]
        print("\n".join(_lines(columns, whole_rows)[1]))
        return
    if _print_lines(screen, columns, cells):
        return
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    last = len(columns) - 1
    for i, (column, name) in enumerate(zip(columns, names, strict=True)):
        right = column.startswith(">")
        justify: Literal["left", "right"] = "right" if right else "left"
        grid.add_column(name, justify=justify, overflow="fold", no_wrap=right or i < last)
    for row in cells:
        grid.add_row(*map(Text, row))
    print_grid(screen, grid)


def _unbroken(
    columns: Sequence[str], rows: list[list[str]], same: Sequence[str], width: int
) -> tuple[Sequence[str], list[list[str]], Sequence[str]] | None:
    """Columns and rows whose sentences need no second line, at most without those that are the same
    in all rows, and what was left out; None where there is no room for that."""
    for count in range(len(same) + 1):
        kept = [i for i, column in enumerate(columns) if column not in same[:count]]
        fewer = [columns[i] for i in kept]
        cells = [[row[i] for i in kept] for row in rows]
        if _lines(fewer, cells)[0] <= width:
            return fewer, cells, [column for column in columns if column in same[:count]]
    return None


def _fitting(
    columns: Sequence[str], rows: list[list[str]], spare: Iterable[str], width: int
) -> tuple[Sequence[str], list[list[str]], Sequence[str]]:
    """Columns and rows without what can be spared, and what that is; all of it if none fits."""
    left_out: list[str] = []
    kept = list(range(len(columns)))
    for name in (None, *spare):
        if name is not None:
            if name not in columns:
                continue
            left_out.append(name)
            kept.remove(columns.index(name))
        fewer = [columns[i] for i in kept]
        cells = [[row[i] for i in kept] for row in rows]
        if _narrowest(fewer, cells) <= width or _fits_without_prose(fewer, cells, width):
            return fewer, cells, [column for column in columns if column in left_out]
    return columns, rows, ()


def _print_lines(screen: "Console", columns: Sequence[str], rows: list[list[str]]) -> bool:
    """Print what needs neither fold nor crop, line for line as Rich would lay it out, which is slow
    for thousands of rows; whether it was so."""
    from rich.text import Text

    if any("\n" in cell for row in rows for cell in row):
        return False
    width, lines = _lines(columns, rows)
    if width > screen.width:
        return False
    screen.print(Text(lines[0], style="dim"))
    print("\n".join(["─" * width, *lines[1:]]))
    return True


def _lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[int, list[str]]:
    """How wide a table is, and its lines: one of names and one for each row."""
    from rich.cells import cell_len

    names = [column.removeprefix(">") for column in columns]
    lengths = [[cell_len(cell) for cell in row] for row in (names, *rows)]
    widths = [max(column) for column in zip(*lengths, strict=True)]
    right = [column.startswith(">") for column in columns]
    lines = [
        (" " * APART)
        .join(
            " " * (width - length) + cell if to_right else cell + " " * (width - length)
            for cell, length, width, to_right in zip(row, own, widths, right, strict=True)
        )
        .rstrip()
        for row, own in zip((names, *rows), lengths, strict=True)
    ]
    return sum(widths) + APART * (len(widths) - 1), lines


APART = 3
"""Blanks between two columns."""
INDENT = 2
NARROW = 5
"""What stands below a row is indented as its second cell, if the first column is no wider."""
LEAST_WORDS = 24
"""A column of words that comes last is wrapped, down to so many characters."""


def _narrowest(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Characters that a table needs so that nothing but words in its last column is broken."""
    from rich.cells import cell_len

    widths = [
        max(cell_len(text) for text in (column.removeprefix(">"), *(row[i] for row in rows)))
        for i, column in enumerate(columns)
    ]
    if not columns[-1].startswith(">"):
        widths[-1] = min(widths[-1], LEAST_WORDS)
    return sum(widths) + APART * (len(widths) - 1)


def _fits_without_prose(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> bool:
    """Whether the last column has sentences, and all others fit."""
    prose = not columns[-1].startswith(">") and any(len(row[-1]) > LEAST_WORDS for row in rows)
    return prose and _narrowest([*columns[:-1], ">"], [(*row[:-1], "") for row in rows]) <= width


def _prose_below(screen: "Console", columns: Sequence[str], rows: list[list[str]]) -> None:
    """Rows of all columns but the last, whose text stands below each, indented as the second."""
    from rich.cells import cell_len
    from rich.padding import Padding
    from rich.text import Text

    names = [column.removeprefix(">") for column in columns]
    *first, last = columns
    lines = [[name.removeprefix(">") for name in first], *(row[:-1] for row in rows)]
    widths = [max(map(cell_len, cells)) for cells in zip(*lines, strict=True)]
    indent = widths[0] + APART if widths[0] <= NARROW else INDENT

    def line(cells: Sequence[str]) -> str:
        told = (
            " " * (width - cell_len(cell)) + cell
            if column.startswith(">")
            else cell + " " * (width - cell_len(cell))
            for column, cell, width in zip(first, cells, widths, strict=True)
        )
        return (" " * APART).join(told).rstrip()

    whole = sum(widths) + APART * (len(widths) - 1)
    for style, cells in (("dim", names), *(("", row) for row in rows)):
        screen.print(Text(line(cells[:-1]), style=style))
        screen.print(Padding(Text(cells[-1], style=style), (0, 0, 0, indent)))
        if cells is names:
            screen.print("─" * max(whole, indent + cell_len(last)))


def _paragraph(screen: "Console", names: Sequence[str], row: Sequence[str]) -> None:
    """A row with its first named cell above the others, which bear the names of their columns.

    No line ends within a cell that fits one.
    """
    from rich.padding import Padding
    from rich.text import Text

    first = next((i for i, name in enumerate(names) if name), 0)
    screen.print(Text(" ".join(cell for cell in row[: first + 1] if cell), style="bold"))
    rest = zip(names[first + 1 :], row[first + 1 :], strict=True)
    line = Text()
    for pair in (Text.assemble((f"{name} ", "dim"), cell) for name, cell in rest if cell):
        if line and INDENT + line.cell_len + APART + pair.cell_len > screen.width:
            screen.print(Padding(line, (0, 0, 0, INDENT)))
            line = Text()
        line.append_text(Text(" " * APART if line else "")).append_text(pair)
    screen.print(Padding(line, (0, 0, 0, INDENT)))
