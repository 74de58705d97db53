"""Tables for people: columns with their units, numbers aligned."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from variants.figures import accuracy_text, figure

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


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
        columns, cells, left_out = _fitting(
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
    _print(screen, grid)


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
WITHOUT_KEY = "(without a key)"
"""In the place of a client's name, of queries that came without one."""
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


def _print(screen: "Console", grid: "Table") -> None:
    """Print a grid; a pipe gets no blanks at the ends of lines."""
    if screen.is_terminal:
        screen.print(grid)
        return
    with screen.capture() as shown:
        screen.print(grid)
    print("\n".join(line.rstrip() for line in shown.get().splitlines()))


def what_is_new(lists: Sequence[Sequence[str]]) -> Iterator[Sequence[str]]:
    """Of each list, the newest first, what the one before it had not; at least its first item."""
    for said, before in zip(lists, (*lists[1:], ()), strict=False):
        yield [one for one in said if one not in before] or said[:1]


def details(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one pair on a line."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(name, Text(printable(value)))
    _print(console(), grid)


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


def printable(text: str) -> str:
    """Text without control characters: what a server sends must not steer the terminal."""
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in text)


def ms(value: float | None) -> str:
    """Milliseconds with three significant digits or so."""
    if value is None:
        return "-"
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def seconds(value: float) -> str:
    """A duration in the unit that suits it."""
    if value < 1:
        return f"{ms(1_000 * value)} ms"
    return f"{value:.2f} s" if value < 100 else f"{value:,.0f} s"


def percent(value: float | None) -> str:
    """A share of a whole with two decimals, as the page has it: 100 only where it is all."""
    return "-" if value is None else accuracy_text(value)


def half_interval(variant: Mapping[str, Any]) -> str:
    """Half of the 95 % interval of a variant's accuracy, in percent, where it has one."""
    if variant.get("accuracy_low") is None:
        return "-"
    return f"{50 * (variant['accuracy_high'] - variant['accuracy_low']):.2f}"


def interval(variant: Mapping[str, Any]) -> str:
    """The rest of a sentence on a variant's accuracy: the interval, where it has one."""
    low, high = variant["accuracy_low"], variant["accuracy_high"]
    return "" if low is None else f"; 95 % sure of {percent(low)} to {percent(high)}"


def usd(value: float | None) -> str:
    """A price with two significant digits, never in scientific notation."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    from math import floor, log10

    return f"{value:.{max(2, 1 - floor(log10(abs(value))))}f}"


def usd_per_million(usd_per_1k: float | None) -> str:
    """A price per 1,000 queries as that of a million: few have as many zeros."""
    return usd(None if usd_per_1k is None else 1_000 * usd_per_1k)


def rate(value: float) -> str:
    """A throughput: three significant digits, as more are not known."""
    return f"{float(f'{value:.3g}'):,.0f}"


def mib(value: float | None) -> str:
    """Memory and sizes; of a small file as many digits as say more than that it is there."""
    if value is None:
        return "-"
    if 0 < value < 0.05:  # or it would be 0.0
        return figure(value)
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def joules(value: float | None) -> str:
    """Energy; a dash where it was not measured."""
    return "-" if value is None else figure(value, 2)


def clock(at: str) -> str:
    """A point in time in UTC, as sentences of the product have it, or the text itself."""
    told = clock_cell(at)
    return told if told == at else f"{told} UTC"


def clock_cell(at: str) -> str:
    """The same without the zone, for a column whose head names it."""
    try:
        return datetime.fromisoformat(at).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return at


def wanted_words(row: Mapping[str, Any]) -> str:
    """``cpu-4: 3 wanted, 1 running``, of a row of the inventory."""
    words = f"{row['device_kind']}: {row['wanted']} wanted, {row['running']} running"
    if row.get("silent"):
        words += f", {row['silent']} not answering"
    if row["draining"]:
        words += f", {row['draining']} draining"
    if row["wanted"] != row["asked"]:
        words += f" (the plan decides, up to {row['asked']})"
    return printable(words)


def tensor(spec: Mapping[str, Any]) -> str:
    """``pixels float32[64]``."""
    return f"{spec['name']} {spec['dtype']}[{', '.join(map(str, spec['shape']))}]"
