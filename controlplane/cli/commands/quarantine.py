"""``quarantine``: variants that workers keep out because they failed, and the end of that."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from controlplane.cli.gateway_client import UrlOption, at, connect
from controlplane.cli.outcome import Output, OutputOption, emit
from controlplane.cli.render import clock, printable, table

Row = Mapping[str, Any]

quarantine = typer.Typer(
    help="Variants that workers keep out because they failed.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@quarantine.command("list")
def list_quarantine(url: UrlOption = "", output: OutputOption = Output.TABLE) -> None:
    """What is in quarantine: where, since when and why."""
    with connect(url) as client:
        rows = client.get("/v1/quarantine")["quarantine"]
    emit(rows, output, lambda: _table(rows))


@quarantine.command("lift")
def lift_quarantine(
    task: Annotated[str, typer.Argument(metavar="TASK", help="Name of a task.")],
    variant: Annotated[str, typer.Argument(metavar="VARIANT", help="Name of a variant.")],
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Have all workers take a variant back that was put in order.

    They forget what it did until now. If it fails again, it is put into quarantine again.
    """
    with connect(url) as client:
        row = client.delete(at("v1", "quarantine", task, variant))
    emit(row, output, lambda: typer.echo(_words(row)))


# -- for people ---------------------------------------------------------------------------------


def _table(rows: Sequence[Row]) -> None:
    table(
        ["TASK", "VARIANT", "WORKER", "SINCE", "WHY"],
        (
            [row["task"], row["variant"], row["worker"], clock(row["since"]), row["why"]]
            for row in rows
        ),
        empty="Nothing is in quarantine.",
    )


def _words(row: Row) -> str:
    workers = ", ".join(row["workers"])
    return printable(f"{row['task']}/{row['variant']} is in quarantine no more on {workers}")
