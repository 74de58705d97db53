"""``modelless doctor``: whether everything can run here, and what to do where it cannot."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict

import typer

from controlplane.cli.outcome import DONE, REFUSED, Output, OutputOption, emit
from controlplane.cli.state_settings import StateDir, read_settings
from controlplane.startup.checks.finding import Finding
from controlplane.startup.doctor import examine
from variants.figures import counted


def doctor(
    *,
    state_dir: StateDir = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check that everything can run here: packages, settings, state, services, memory, artifacts.

    Reads every stored artifact. Starts and changes nothing. Ends with 1 when there is a problem.
    """
    settings = read_settings(state_dir=state_dir)
    found: list[Finding] = []
    with _status(output) as say:
        for finding in examine(settings, say):
            found.append(finding)
            if output is Output.TABLE:
                _show(finding)
    emit([asdict(finding) for finding in found], output, lambda: _sum_up(found))
    raise typer.Exit(DONE if all(finding.ok for finding in found) else REFUSED)


@contextmanager
def _status(output: Output) -> Iterator[Callable[[str], None]]:
    """A line on a terminal that says how far reading the artifacts is."""
    if output is not Output.TABLE or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status("") as line:
        yield lambda text: line.update(f"artifacts: {text}")


def _show(finding: Finding) -> None:
    from rich.markup import escape

    from controlplane.cli.render import console, hanging, printable

    word, style = "ok", "green"
    if finding.remedy:
        word, style = ("warning", "yellow") if finding.ok else ("problem", "bold red")
    said = escape(printable(finding.message))
    if finding.remedy:
        said += f"[yellow]; {escape(printable(finding.remedy))}[/]"
    hanging(console(), f"[{style}]{word:<9}[/]{finding.name:<11}", said)


def _sum_up(found: Sequence[Finding]) -> None:
    """On a terminal, what matters once more: it may have left the screen by then."""
    if not sys.stdout.isatty():
        return
    problems = [one.name for one in found if not one.ok]
    warnings = [one.name for one in found if one.ok and one.remedy]
    said = [
        f"{counted(len(names), word)} ({', '.join(names)})"
        for names, word in ((problems, "problem"), (warnings, "warning"))
        if names
    ]
    typer.echo(f"\n{' and '.join(said) or 'Everything can run here.'}")
