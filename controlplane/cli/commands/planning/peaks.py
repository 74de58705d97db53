"""``peaks``: known peaks of demand, declared, listed and taken back."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from controlplane.cli.commands.residency.durations import duration_s
from controlplane.cli.gateway_client import UrlOption, at, connect
from controlplane.cli.outcome import Output, OutputOption, emit
from controlplane.cli.render import clock, clock_cell, printable, table
from controlplane.views.peak_schemas import EVERY_S, Repeat
from variants.catalog.validity.peaks import check_peak
from variants.errors import InvalidInput
from variants.types import Peak, TaskName

Row = Mapping[str, Any]

peaks = typer.Typer(
    help="Peaks of demand that are known beforehand.", no_args_is_help=True, rich_markup_mode=None
)


@peaks.command("list")
def list_peaks(url: UrlOption = "", output: OutputOption = Output.TABLE) -> None:
    """All declared peaks, those that are over as well."""
    with connect(url) as client:
        rows = client.get("/v1/peaks")["peaks"]
    emit(rows, output, lambda: _table(rows))


@peaks.command("add")
def add_peak(
    factor: Annotated[
        float | None,
        typer.Option(
            "--factor",
            metavar="X",
            help="How many times the demand that there is when it begins; from 1 on.",
        ),
    ] = None,
    qps: Annotated[
        float | None, typer.Option("--qps", metavar="N", help="Or rows per second, of one task.")
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", metavar="TASK", help="Of this task; else of all.")
    ] = None,
    start: Annotated[
        str, typer.Option("--start", metavar="TIME", help="ISO 8601, in local time; else now.")
    ] = "",
    end: Annotated[
        str, typer.Option("--end", metavar="TIME", help="ISO 8601, in local time.")
    ] = "",
    lasts: Annotated[
        str, typer.Option("--for", metavar="TIME", help="Or how long it lasts: 90s, 30m, 12h, 2d.")
    ] = "",
    repeat: Annotated[
        Repeat | None, typer.Option("--repeat", help="It comes again each day or week.")
    ] = None,
    note: Annotated[
        str, typer.Option("--note", metavar="TEXT", help="A note, shown beside it.")
    ] = "",
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Declare a peak, so that capacity is there before it begins.

    \b
    modelless peaks add --factor 3 --start 2027-11-26T08:00 --for 12h --note sale
    """
    begin = _time("--start", start) if start else datetime.now().astimezone()
    if bool(end) == bool(lasts):
        raise InvalidInput("a peak needs --end or --for, one of the two")
    finish = _time("--end", end) if end else _after(begin, duration_s("--for", lasts))
    body: dict[str, Any] = {
        "factor": factor,
        "qps": qps,
        "task": task,
        "start": begin.isoformat(),
        "end": finish.isoformat(),
        "repeat": repeat,
        "note": note,
    }
    check_peak(_peak(body, begin, finish))
    with connect(url) as client:
        row = client.post("/v1/peaks", body)
    emit(row, output, lambda: typer.echo(f"peak {row['id']}: {_words(row)}"))


@peaks.command("remove")
def remove_peak(
    id: Annotated[int, typer.Argument(metavar="ID", min=1, help="As `peaks list` shows it.")],
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Take a declared peak back."""
    with connect(url) as client:
        row = client.delete(at("v1", "peaks", str(id)))
    emit(row, output, lambda: typer.echo(f"peak {row['id']} was taken back: {_words(row)}"))


def _peak(body: Mapping[str, Any], begin: datetime, finish: datetime) -> Peak:
    """The peak that a body declares, to be checked as the gateway checks it."""
    return Peak(
        task=None if body["task"] is None else TaskName(body["task"]),
        factor=body["factor"],
        qps=body["qps"],
        start_s=begin.timestamp(),
        end_s=finish.timestamp(),
        every_s=EVERY_S[body["repeat"]] if body["repeat"] else 0.0,
        note=body["note"],
    )


def _time(option: str, text: str) -> datetime:
    """A point in time; without an offset in this machine's zone."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidInput(f"{option} {text[:40]!r} is no time such as 2027-11-26T08:00") from error


def _after(begin: datetime, seconds: float) -> datetime:
    try:
        return begin + timedelta(seconds=seconds)
    except OverflowError as error:
        raise InvalidInput("the peak ends after all times that can be told") from error


# -- for people ---------------------------------------------------------------------------------


def _table(rows: Sequence[Row]) -> None:
    table(
        [">ID", "TASK", "DEMAND", "BEGINS (UTC)", "ENDS (UTC)", "REPEAT", "STATE", "NOTE"],
        (
            [
                str(row["id"]),
                row["task"] or "all",
                _demand(row),
                clock_cell(row["begins"]),
                clock_cell(row["ends"]),
                row["repeat"] or "-",
                row["state"],
                row["note"],
            ]
            for row in rows
        ),
        empty="No peak is declared; `modelless peaks add` declares one.",
    )


def _demand(row: Row) -> str:
    return f"x {row['factor']:g}" if row["factor"] is not None else f"{row['qps']:,g} queries/s"


def _words(row: Row) -> str:
    words = f"{_demand(row)} of {row['task'] or 'all tasks'}, "
    words += f"{clock(row['begins'])} until {clock(row['ends'])}"
    return printable(words + (f", {row['repeat']}" if row["repeat"] else ""))
