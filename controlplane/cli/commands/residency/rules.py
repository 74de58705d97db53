"""``rules``, ``freeze`` and ``thaw``: what operators said, and a plan that stays as it is."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from controlplane.cli.commands.residency.durations import duration_s
from controlplane.cli.commands.residency.operator import WhyOption, operator
from controlplane.cli.gateway_client import UrlOption, at, connect
from controlplane.cli.outcome import Output, OutputOption, emit
from controlplane.cli.render import clock, clock_cell, printable, table
from variants.errors import Conflict

Row = Mapping[str, Any]

rules = typer.Typer(
    help="Rules of operators: pins, forbidden variants, a frozen plan.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@rules.command("list")
def list_rules(url: UrlOption = "", output: OutputOption = Output.TABLE) -> None:
    """All rules, who gave them and why, and what has become of each."""
    with connect(url) as client:
        rows = client.get("/v1/rules")["rules"]
    emit(rows, output, lambda: _table(rows))


@rules.command("remove")
def remove_rule(
    id: Annotated[int, typer.Argument(metavar="ID", min=1, help="As `rules list` shows it.")],
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Take a rule back."""
    with connect(url) as client:
        row = client.delete(at("v1", "rules", str(id)))
    emit(row, output, lambda: typer.echo(f"rule {row['id']} was taken back: {_taken(row)}"))


def freeze(
    lasts: Annotated[
        str, typer.Option("--for", metavar="TIME", help="For so long: 90s, 30m, 12h, 2d.")
    ] = "",
    why: WhyOption = "",
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Have the plan stay as it is: nothing is loaded, unloaded or scaled by the control loop.

    What the plan places is restored where a worker is lost. Queries may have variants loaded into
    memory that is free. `modelless thaw` ends it.

    \b
    modelless freeze --for 2h --why sale
    """
    body: dict[str, Any] = {"rule": "freeze", "why": why, "by": operator()}
    if lasts:
        body["for_s"] = duration_s("--for", lasts)
    with connect(url) as client:
        row = client.post("/v1/rules", body)
    until = f" until {clock(row['until'])}" if row["until"] else ", until `modelless thaw`"
    emit(row, output, lambda: typer.echo(f"the plan stays as it is{until}"))


def thaw(url: UrlOption = "", output: OutputOption = Output.TABLE) -> None:
    """Let the control loop make plans again."""
    with connect(url) as client:
        found = [row for row in client.get("/v1/rules")["rules"] if row["rule"] == "freeze"]
        if not found:
            raise Conflict("the plan is not frozen")
        row = client.delete(at("v1", "rules", str(found[0]["id"])))
    emit(row, output, lambda: typer.echo("plans are made again"))


# -- for people ---------------------------------------------------------------------------------


def _table(rows: Sequence[Row]) -> None:
    table(
        [">ID", "RULE", "WHAT", "SINCE (UTC)", "UNTIL (UTC)", "BY", "WHY", "NOW"],
        (
            [
                str(row["id"]),
                row["rule"],
                _about(row),
                clock_cell(row["since"]),
                clock_cell(row["until"]) if row["until"] else "-",
                row["by"] or "-",
                row["why"] or "-",
                row["standing"],
            ]
            for row in rows
        ),
        empty="There is no rule; `modelless pin`, `forbid` and `freeze` make them.",
        alike=("UNTIL (UTC)", "BY", "WHY"),
        spare=("SINCE (UTC)", "BY", "WHY"),
    )


def _taken(row: Row) -> str:
    return "plans are made again" if row["rule"] == "freeze" else _about(row)


def _about(row: Row) -> str:
    if row["rule"] == "freeze":
        return "the plan"
    where = f" on {row['device_kind']}" if row["device_kind"] else ""
    times = f", {row['replicas']} x" if row["replicas"] > 1 else ""
    return printable(f"{row['task']}/{row['variant']}{where}{times}")
