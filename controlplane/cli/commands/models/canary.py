"""``canary`` and ``rollback``: a new version proves itself on a share of the queries."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from controlplane.cli.commands.names import ModelArgument, NewestArgument, TaskArgument
from controlplane.cli.gateway_client import UrlOption, at, connect
from controlplane.cli.outcome import Output, OutputOption, WrongUsage, emit
from controlplane.cli.render import clock_cell, ms, percent, printable, table
from variants.errors import InvalidInput
from variants.figures import read_number

Row = Mapping[str, Any]
USAGE = (
    "modelless canary TASK MODEL [VERSION] --share 5%",
    "modelless canary list",
)


def canary(
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="Name of a task; `list` alone shows canaries.")
    ],
    model: ModelArgument = "",
    version: NewestArgument = None,
    share: Annotated[
        str,
        typer.Option(
            "--share",
            metavar="SHARE",
            help="Of the queries that name no variant: 5% or 0.05; 0 ends it.",
        ),
    ] = "",
    after: Annotated[
        int,
        typer.Option(
            "--after", metavar="N", min=1, help="Queries after which it can be found good."
        ),
    ] = 1_000,
    promote: Annotated[
        bool, typer.Option("--promote", help="Make it live once it is found good.")
    ] = False,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Give a new version a share of the queries, and watch what becomes of them.

    It is rolled back by itself where it is found worse than the live versions: more queries fail
    or are late, or more rows are wrong by what `modelless feedback` says. `modelless canary list`
    shows the evidence.

    \b
    modelless canary churn churn --share 5%
    modelless canary list
    """
    if not model:
        if task != "list" or share:
            raise WrongUsage("a task and a model are needed", USAGE)
        _list(url, output)
        return
    if not share:
        raise WrongUsage("--share is needed", USAGE)
    body = {"share": share_of(share), "after": after, "promote": promote}
    with connect(url) as client:
        number = version
        if number is None:
            versions = client.get(at("v1", "models", task, model))["versions"]
            number = versions[-1]["version"]
        path = at("v1", "models", task, model, "versions", str(number), "canary")
        row = client.put(path, body)
    emit(row, output, lambda: typer.echo(printable(_set_words(row))))


def rollback(
    task: TaskArgument,
    model: ModelArgument,
    version: Annotated[
        int | None,
        typer.Option(
            "--version",
            metavar="N",
            min=1,
            help="The version that is taken back, not the one to go back to; else the newest,"
            " where it is clear which one that is.",
        ),
    ] = None,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """End a canary's share; without one, go back to the version that was live before.

    While a canary has a share, the live versions stay as they are. Where a share was ended already,
    or a version rolled back, it changes nothing and asks which version is meant.

    \b
    modelless rollback churn churn
    modelless rollback churn churn --version 2
    """
    body = {} if version is None else {"version": version}
    with connect(url) as client:
        row = client.post(at("v1", "models", task, model, "rollback"), body)
    emit(row, output, lambda: typer.echo(printable(_rollback_words(row))))


def share_of(text: str) -> float:
    """``5%`` or ``0.05`` as a number.

    Raises:
        InvalidInput: it is neither, or not between 0 and 1.
    """
    number, whole = (text[:-1], 100.0) if text.endswith("%") else (text, 1.0)
    try:
        share = read_number(number) / whole
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise InvalidInput(f"--share is a part of the queries, such as 5% or 0.05, not {text!r}")
    return share


def _list(url: str, output: Output) -> None:
    with connect(url) as client:
        rows = client.get("/v1/canaries")["canaries"]
    emit(rows, output, lambda: _table(rows))


# -- for people ---------------------------------------------------------------------------------


def _set_words(row: Row) -> str:
    name = row["model_version"]
    if not row["share"]:
        return f"{name} has no share of the queries any more; it answers those that name it"
    then = "is made live" if row["promote"] else "is told of in `modelless events list`"
    return (
        f"{name} gets {percent(row['share'])} of the queries of {row['task']} that name no variant"
        f" and that it can meet the SLO of; it is rolled back if it is worse, and once it is found"
        f" as good, after {row['after']:,} of them or more, it {then}"
    )


def _rollback_words(row: Row) -> str:
    if row["ended"]:
        return (
            f"{row['ended']} has no share of the queries any more; it answers those that name it;"
            " what is live stays live"
        )
    number = row["retired"].rpartition("-v")[2]
    return (
        f"{row['retired']} is retired, {row['live']} is live;"
        f" `modelless promote {row['task']} {row['model']} {number}` brings it back"
    )


def _table(rows: Sequence[Row]) -> None:
    table(
        [
            "TASK",
            "VERSION",
            ">SHARE",
            "SINCE (UTC)",
            ">QUERIES",
            ">LATE",
            ">FAILED",
            ">MEAN MS",
            "VERDICT",
        ],
        (
            [
                row["task"],
                row["model_version"],
                percent(row["share"]) if row["share"] else "ended",
                clock_cell(row["set_at"]),
                *_evidence(row["canary"]),
                (row["verdict"] or "").replace("_", " "),
            ]
            for row in rows
        ),
        empty="No canary has a share of the queries; "
        "`modelless canary TASK MODEL --share 5%` gives one.",
    )
    for row in rows:
        said = [row["ended"] or row["why"]]
        if row["not_diverted"]:
            listed = (
                f"{count:,} {why.replace('_', ' ')}"
                for why, count in sorted(row["not_diverted"].items())
            )
            said.append(f"answered as always: {', '.join(listed)}")
        if words := "; ".join(filter(None, said)):
            typer.echo(printable(f"{row['task']} {row['model_version']}: {words}"))


def canary_sentences(rows: Sequence[Row]) -> list[str]:
    """What is known of each canary, in one sentence each."""
    said = []
    for row in rows:
        name = f"{row['task']}/{row['model_version']}"
        if row["ended"]:
            said.append(f"{name} was rolled back, it was found worse: {row['ended']}")
            continue
        verdict = (row["verdict"] or "not judged yet").replace("_", " ")
        why = f": {row['why']}" if row["why"] else ""
        said.append(f"{name} is a canary on {percent(row['share'])} of queries, {verdict}{why}")
    return said


def _evidence(arm: Row | None) -> list[str]:
    if arm is None:
        return ["", "", "", ""]
    return [f"{arm['queries']:,}", f"{arm['late']:,}", f"{arm['failed']:,}", ms(arm["mean_ms"])]
