"""``modelless``: the command line's entry and its exit codes.

Exit codes: 0 done; 1 the system refused or failed; 2 the input is wrong; 3 nothing is running;
130 interrupted.
"""

from typing import Annotated

import typer

app = typer.Typer(
    name="modelless",
    help="Ask for a task, not a model.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(show: bool) -> None:
    if show:
        from importlib.metadata import version

        typer.echo(f"modelless {version('modelless')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Ask for a task, not a model."""


def main() -> None:
    app()
