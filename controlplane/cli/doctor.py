"""``modelless doctor``: whether everything can run here, and what to do where it cannot."""

from dataclasses import asdict

import typer

from controlplane.cli.lifecycle import StateDir, read_settings
from controlplane.cli.outcome import DONE, REFUSED, Output, OutputOption, emit
from controlplane.doctor import Finding, examine


def doctor(
    *,
    state_dir: StateDir = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check that everything can run here: packages, state, port, services, memory.

    Starts and changes nothing. Ends with 1 when there is a problem.
    """
    settings = read_settings(state_dir=state_dir)
    found: list[Finding] = []
    for finding in examine(settings):
        found.append(finding)
        if output is Output.TABLE:
            _show(finding)
    emit([asdict(finding) for finding in found], output, lambda: None)
    raise typer.Exit(DONE if all(finding.ok for finding in found) else REFUSED)


def _show(finding: Finding) -> None:
    from rich.text import Text

    from controlplane.cli.render import console, printable

    line = Text()
    line.append("ok       " if finding.ok else "problem  ", "green" if finding.ok else "bold red")
    line.append(f"{finding.name:<12}")
    line.append(printable(finding.message))
    if finding.remedy:
        line.append(f"; {printable(finding.remedy)}", "yellow")
    console().print(line, soft_wrap=True)
