"""``runbook``: what an alert means and what to do, where only a terminal is at hand.

The text is docs/runbook.md, which is installed beside this package.
"""

import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from importlib.resources import files
from textwrap import fill
from typing import Annotated

import typer

from controlplane.cli.outcome import Output, OutputOption, emit
from controlplane.cli.render import table
from variants.errors import InvalidInput

PREFIX = "Modelless"
WIDEST = 100
"""Columns: longer lines are hard to read."""
LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What the runbook says of one alert."""

    alert: str
    severity: str
    """``page`` or ``ticket``."""
    means: str
    """Its first sentence."""
    text: str
    """All of it, as Markdown."""


def runbook(
    alert: Annotated[
        str | None,
        typer.Argument(metavar="ALERT", help="Name of an alert, `Modelless` or not; else all."),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """What an alert means, where to look, and what to do."""
    known = sections()
    if alert is None:
        rows = [{"alert": one.alert, "severity": one.severity, "means": one.means} for one in known]

        def show() -> None:
            cells = [list(row.values()) for row in rows]
            table(["ALERT", "SEVERITY", "MEANS"], cells, empty="")

        emit(rows, output, show)
        return
    found = _meant(alert, known)
    emit(asdict(found), output, lambda: typer.echo(f"{found.alert}\n\n{plain(found.text)}"))


def sections() -> list[Section]:
    """The alerts of the runbook, in its order."""
    text = files("controlplane.cli").joinpath("runbook.md").read_text(encoding="utf-8")
    found = []
    for part in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        name, _, rest = part.partition("\n")
        body = re.split(r"^## ", rest, flags=re.MULTILINE)[0].strip()
        severity, _, said = body.partition("`. ")
        first = plain(said.split("\n\n")[0], width=10**6).strip().split(". ")[0].rstrip(".")
        found.append(
            Section(alert=name.strip(), severity=severity.lstrip("`"), means=first, text=body)
        )
    return found


def plain(text: str, width: int | None = None) -> str:
    """Markdown as a terminal has it: paragraphs and items of its width, links as their places."""
    width = min(WIDEST, shutil.get_terminal_size().columns) if width is None else width
    return "\n".join(_paragraphs(LINK.sub(_place, text), width))


def _paragraphs(text: str, width: int) -> Iterator[str]:
    for block in text.split("\n\n"):
        if block.startswith("    "):  # commands, as they are typed
            yield f"{block}\n"
            continue
        for item in re.split(r"\n(?=- )", block):
            words = " ".join(item.split())
            indent = "  " if words.startswith("- ") else ""
            yield fill(
                words, width, subsequent_indent=indent, break_long_words=False,
                break_on_hyphens=False,
            )  # fmt: skip
        yield ""


def _place(link: re.Match[str]) -> str:
    words, to = link.groups()
    if to.startswith("#"):
        return f"`modelless runbook {words}`" if words.startswith(PREFIX) else words
    return f"{words} (docs/{to})" if not to.startswith("../") else f"{words} ({to[3:]})"


def _meant(given: str, known: list[Section]) -> Section:
    """
    Raises:
        InvalidInput: there is no such alert.
    """

    def short(name: str) -> str:
        return name.lower().removeprefix(PREFIX.lower())

    by_name = {short(one.alert): one for one in known}
    if (found := by_name.get(short(given))) is not None:
        return found
    near = get_close_matches(short(given), by_name, n=3, cutoff=0.5)
    meant = f"; did you mean {', '.join(by_name[name].alert for name in near)}?" if near else ""
    raise InvalidInput(
        f"the runbook has no alert {given[:64]!r}{meant or '; `modelless runbook` lists all'}"
    )
