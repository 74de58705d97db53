"""``tasks``: what can be asked for, and whether equal queries share answers."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from controlplane.cli.gateway_client import UrlOption, at, connect
from controlplane.cli.outcome import Output, OutputOption, emit
from controlplane.cli.render import details, percent, table, tensor, usd_per_million

TaskArgument = Annotated[str, typer.Argument(metavar="TASK", help="Name of a task.")]
Row = Mapping[str, Any]

tasks = typer.Typer(help="What can be asked for.", no_args_is_help=True, rich_markup_mode=None)


@tasks.command("list")
def list_tasks(url: UrlOption = "", output: OutputOption = Output.TABLE) -> None:
    """All tasks."""
    with connect(url) as client:
        rows = client.get("/v1/tasks")["tasks"]
    emit(rows, output, lambda: _task_table(rows))


@tasks.command("get")
def get_task(task: TaskArgument, url: UrlOption = "", output: OutputOption = Output.TABLE) -> None:
    """One task: signature, labels and default needs."""
    with connect(url) as client:
        row = client.get(at("v1", "tasks", task))
    emit(row, output, lambda: _task_details(row))


@tasks.command("share")
def share(
    task: TaskArgument,
    ttl_s: Annotated[
        float,
        typer.Option(
            "--ttl-s",
            metavar="S",
            min=0.0,
            help="How long an answer is given again; 0: only queries in flight share.",
        ),
    ] = 60.0,
    memory_mib: Annotated[
        float,
        typer.Option("--memory-mib", metavar="MIB", help="What each gateway keeps at most."),
    ] = 64.0,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Let equal queries of a task share answers.

    Those in flight share one run, and its answer is given again for a while. It is for models whose
    answer follows from their inputs alone.
    """
    limits = {"ttl_s": ttl_s, "memory_mib": memory_mib}
    with connect(url) as client:
        row = client.put(at("v1", "tasks", task, "sharing"), limits)
    emit(row, output, lambda: typer.echo(f"{task}: {sharing_words(row['sharing'])}"))


@tasks.command("unshare")
def unshare(
    task: TaskArgument,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Run every query of a task again."""
    with connect(url) as client:
        row = client.delete(at("v1", "tasks", task, "sharing"))
    emit(row, output, lambda: typer.echo(f"{task}: {sharing_words(row['sharing'])}"))


# -- for people ---------------------------------------------------------------------------------


def _task_table(rows: list[Row]) -> None:
    table(
        ["TASK", "INPUTS", "OUTPUTS", ">MODELS", ">VARIANTS", ">BEST"],
        (
            [
                row["name"],
                ", ".join(map(tensor, row["inputs"])),
                ", ".join(map(tensor, row["outputs"])),
                str(row["models"]),
                str(row["variants"]),
                percent(row["best_accuracy"]),
            ]
            for row in rows
        ),
        empty="There are no tasks; `modelless register` makes one.",
    )


def _ceiling(usd_per_1k: float | None) -> str:
    if usd_per_1k is None:
        return "any"
    return f"at most {usd_per_million(usd_per_1k)} USD per million queries"


def _task_details(row: Row) -> None:
    slo = row["slo"]
    details(
        [
            ("task", row["name"]),
            ("inputs", ", ".join(map(tensor, row["inputs"]))),
            ("outputs", ", ".join(map(tensor, row["outputs"]))),
            ("labels", ", ".join(row["labels"]) or "-"),
            ("metric", row["metric"]),
            ("latency", f"{slo['latency_ms']:g} ms unless asked otherwise"),
            ("accuracy", "any" if slo["accuracy"] is None else f"at least {slo['accuracy']:g}"),
            ("cost", _ceiling(slo["cost"])),
            ("prefer", slo["prefer"]),
            ("models", str(row["models"])),
            ("variants", _variants(row)),
            ("equal queries", sharing_words(row["sharing"])),
        ]
    )


def _variants(row: Row) -> str:
    """How many there are, and how accurate an answer can be."""
    live, all_ = row["live_variants"], row["variants"]
    if not live:
        return f"{all_}, none of a live version"
    of_them = "" if live == all_ else f"{live} of them live, "
    return f"{all_}, {of_them}the best {percent(row['best_accuracy'])}"


def sharing_words(sharing: Mapping[str, float] | None) -> str:
    """What becomes of equal queries: ``share a run; answers are kept for 60 s, at most 64 MiB``."""
    if sharing is None:
        return "every query is run"
    if not sharing["ttl_s"]:
        return "share a run; no answer is kept"
    kept = f"{sharing['ttl_s']:g} s, at most {sharing['memory_mib']:g} MiB"
    return f"share a run; answers are kept for {kept}"
