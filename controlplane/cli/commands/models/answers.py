"""``answers``: how answers are divided among the classes, and that a change is as it should be."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from controlplane.cli.commands.names import TaskArgument
from controlplane.cli.commands.residency.operator import WhyOption, operator
from controlplane.cli.gateway_client import UrlOption, at, connect
from controlplane.cli.outcome import Output, OutputOption, emit
from controlplane.cli.render import clock_cell, note, percent, printable, table
from controlplane.timestamps import timestamp_of
from variants.figures import MOST_NAMED, some_of

Row = Mapping[str, Any]

answers = typer.Typer(
    help="How answers are divided among the classes, and whether that has changed.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@answers.command("list")
def list_answers(url: UrlOption = "", output: OutputOption = Output.TABLE) -> None:
    """Which variants give other answers than at first, since when, and in which classes.

    That is no error: what is asked, or who asks, may have changed.
    """
    with connect(url) as client:
        rows = client.get("/v1/answers")["answers"]
    emit(rows, output, lambda: _table(rows))


@answers.command("accept")
def accept_answers(
    task: TaskArgument,
    variants: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[VARIANT]...", help="Names of variants; else all whose answers have changed."
        ),
    ] = None,
    why: WhyOption = "",
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Say that answers which have changed are as they should be.

    They count as changed no more, and what is normal is learned anew from the answers to come.

    \b
    modelless answers accept churn --why 'the winter catalogue'
    """
    body = {"variants": variants or [], "why": why, "by": operator()}
    with connect(url) as client:
        row = client.post(at("v1", "answers", task, "accept"), body)
    emit(row, output, lambda: typer.echo(printable(_words(row))))


# -- for people ---------------------------------------------------------------------------------


def _words(row: Row) -> str:
    named = some_of(row["variants"], MOST_NAMED)
    return f"answers of {named} count as changed no more. {row['sentence']}"


def _table(rows: Sequence[Row]) -> None:
    table(
        ["TASK", "VARIANT", ">ROWS", ">MOVED", "SINCE (UTC)"],
        (
            [
                row["task"],
                row["variant"],
                f"{row['rows'] if row['complete'] else row['first_rows']:,}",
                percent(row["moved"]),
                _since(row),
            ]
            for row in rows
        ),
        empty="No answers have been counted yet; of tasks with classes they are.",
    )
    if not rows:
        return
    note(
        "MOVED: the part of the latest answers that fall into other classes than the first ones;"
        " SINCE: when that was found to be a change; learning: what is normal is not known yet."
    )
    for row in rows:
        if row["changed"] and row["shifts"]:
            moves = (
                f"{one['classes']}: {percent(one['before'])} before, {percent(one['now'])} now"
                for one in row["shifts"]
            )
            note(f"{row['task']}/{row['variant']}: {'; '.join(moves)}")
    for row in rows:
        if (said := row["accepted"]) is not None:
            why = f": {said['why']}" if said["why"] else ""
            by = said["by"] or "an operator"
            at_ = clock_cell(said["at"])
            note(f"{row['task']}/{row['variant']}: accepted by {by} at {at_} UTC{why}")


def _since(row: Row) -> str:
    if row["since_s"] is not None:
        return clock_cell(timestamp_of(row["since_s"]))
    return "-" if row["complete"] else "learning"
