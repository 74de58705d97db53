"""``events``: what happened, of what is asked for, once or as it goes on."""

import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from controlplane.cli.commands.residency.durations import duration_s
from controlplane.cli.gateway_client import Client, UrlOption, connect
from controlplane.cli.outcome import INTERRUPTED, NotRunning, Output, OutputOption, emit
from controlplane.cli.progress import termination_as_interrupt
from controlplane.cli.render import clock, clock_cell, fits, printable, table
from controlplane.cli.render.event_lines import MOST_ROWS, event_lines, rows_for
from variants.errors import DeadlineExceeded, InvalidInput, ReplicaLost, StateUnavailable

Row = Mapping[str, Any]
FOLLOWED_EVERY_S = 1.0
AWAY = (NotRunning, ReplicaLost, DeadlineExceeded, StateUnavailable)
"""Who follows waits while it is so."""

events = typer.Typer(help="What happened.", no_args_is_help=True, rich_markup_mode=None)


@events.command("list")
def list_events(
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind", metavar="KIND", help="Only of this kind, such as worker_lost; again for more."
        ),
    ] = None,
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="WHEN",
            help="Only from then on: 1h, 30m, or a time in ISO 8601.",
            show_default=False,
        ),
    ] = "",
    task: Annotated[
        str, typer.Option("--task", metavar="TASK", help="Only of this task.", show_default=False)
    ] = "",
    worker: Annotated[
        str,
        typer.Option("--worker", metavar="WORKER", help="Only of this one.", show_default=False),
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with those that come, until Ctrl-C.")
    ] = False,
    limit: Annotated[
        int, typer.Option(min=1, max=MOST_ROWS, metavar="N", help="At most so many.")
    ] = 50,
    after: Annotated[
        int,
        typer.Option(min=0, metavar="N", show_default=False, help="Only newer than this number."),
    ] = 0,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """What happened, newest last.

    In the table many loads in a row are one line; `-o json` has each event. With `--follow` each
    is a line, in JSON as well.
    """
    asked: dict[str, Any] = {
        "kind": kind or None, "task": task or None, "worker": worker or None,
        "since": _since(since, datetime.now(UTC)) if since else None,
    }  # fmt: skip
    with connect(url) as client:
        if follow:
            _follow(client, asked, limit, after, output)
        many = rows_for(limit) if output is Output.TABLE else limit
        rows = _read(client, asked, many, after)
        empty = "Nothing has happened yet."
        if not rows and any(asked.values()):
            empty = "Nothing of that has happened."
            if kind and output is Output.TABLE:
                empty += _known_kinds(client)
    emit(rows, output, lambda: _event_table(event_lines(rows)[-limit:], empty))


def _known_kinds(client: Client) -> str:
    """A sentence on what there was instead: who asks for a kind may have mistyped it."""
    kinds = sorted({str(row["kind"]) for row in _read(client, {}, MOST_ROWS, 0)})
    return f" Kinds of events that have: {', '.join(kinds)}." if kinds else ""


def _since(text: str, now: datetime) -> str:
    """The time that is meant, in ISO 8601 and UTC.

    Raises:
        InvalidInput: it is neither a duration nor a time.
    """
    if text[-1] in "smhd":
        return (now - timedelta(seconds=duration_s("--since", text))).isoformat()
    try:
        return datetime.fromisoformat(text).astimezone(UTC).isoformat()
    except (ValueError, OverflowError) as error:
        raise InvalidInput(
            f"--since {text[:40]!r} is neither a duration such as 90m or 2d nor a time in ISO 8601"
        ) from error


def _read(client: Client, asked: Mapping[str, Any], limit: int, after: int) -> list[Row]:
    """The newest of those that are asked for, newest last."""
    found: list[Row] = client.get("/v1/events", limit=limit, after=after, **asked)["events"]
    return found[::-1]


def _follow(
    client: Client, asked: Mapping[str, Any], limit: int, after: int, output: Output
) -> None:
    """Print what was and what comes, each event once.

    Raises:
        typer.Exit: it was interrupted.
    """
    away = ""
    try:
        with termination_as_interrupt():
            rows = _read(client, asked, limit, after)
            while True:
                for row in rows:
                    after = max(after, int(row["seq"]))
                    typer.echo(_line(row, output))
                time.sleep(FOLLOWED_EVERY_S)
                try:
                    rows = _read(client, asked, MOST_ROWS, after)
                except AWAY as error:
                    rows = []
                    if not away:
                        typer.echo(f"waiting: {printable(error.message)}", err=True)
                    away = error.message
                else:
                    if away:
                        typer.echo("going on", err=True)
                    away = ""
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _line(row: Row, output: Output) -> str:
    """An event as one line; a list of one-line mappings is YAML as well."""
    if output is not Output.TABLE:
        return f"{'- ' if output is Output.YAML else ''}{json.dumps(row)}"
    words = (clock(row["at"]), str(row["kind"]), f"{row['subject']}: {row['message']}")
    return printable("  ".join(words))


def _event_table(lines: Sequence[Sequence[str]], empty: str) -> None:
    columns = [">NO", "AT (UTC)", "WHAT", "SUBJECT", "MESSAGE"]
    rows = [[number, clock_cell(at), *rest] for number, at, *rest in lines]
    if rows and not fits(columns, rows):  # a subject may be as long as two names
        columns = [*columns[:-2], "SUBJECT: MESSAGE"]
        rows = [[*first, f"{subject}: {message}"] for *first, subject, message in rows]
    table(columns, rows, empty=empty)
