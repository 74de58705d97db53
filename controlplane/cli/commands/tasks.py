"""``tasks``: what can be asked for, by which defaults, and whether equal queries share answers."""

from collections.abc import Mapping
from math import isfinite, nan
from typing import Annotated, Any

import typer

from controlplane.cli.commands.models.answer_words import task_words
from controlplane.cli.commands.models.tokenizer import tokenizer
from controlplane.cli.commands.names import TaskArgument
from controlplane.cli.confirmation import YesOption, confirm, removed_words
from controlplane.cli.gateway_client import UrlOption, at, connect
from controlplane.cli.model_options.options import ImageMeanOption, ImageStdOption
from controlplane.cli.model_options.texts import parse_labels
from controlplane.cli.outcome import Output, OutputOption, emit
from controlplane.cli.render import details, note, percent, printable, table, tensor
from controlplane.cli.render.task_words import (
    ceiling_words,
    contradicted_words,
    floor_words,
    image_words,
    label_words,
    length_words,
    sharing_words,
    slo_words,
    text_words,
    unanswered,
    variants_words,
)
from controlplane.wrong_values import as_share
from variants.errors import InvalidInput
from variants.figures import counted, figure, read_number
from variants.images import numbers_in
from variants.types import Prefer

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
    """One task: signature, metric and default needs."""
    with connect(url) as client:
        row = client.get(at("v1", "tasks", task))
    emit(row, output, lambda: _task_details(row))


@tasks.command("set")
def set_defaults(
    task: TaskArgument,
    latency_ms: Annotated[
        float | None, typer.Option(metavar="MS", help="Default deadline.", min=0.001)
    ] = None,
    accuracy: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="Default floor, from 0 to 1; 'any' for none."),
    ] = None,
    cost: Annotated[
        str | None,
        typer.Option(metavar="USD", help="Default ceiling per 1,000 queries; 'any' for none."),
    ] = None,
    prefer: Annotated[
        Prefer | None, typer.Option(help="What is optimised among the variants that fit.")
    ] = None,
    image_mean: ImageMeanOption = None,
    image_std: ImageStdOption = None,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Change what a task has by default, and how pictures are read.

    Defaults hold where a query names nothing. What is not given stays as it is. Queries that come
    after the command has ended follow it.

    \b
    modelless tasks set digits --latency-ms 50 --accuracy 0.97
    modelless tasks set digits --accuracy any --prefer latency
    """
    image = _image_change(image_mean, image_std)
    change: dict[str, Any] = {}
    if latency_ms is not None:
        change["latency_ms"] = latency_ms
    if accuracy is not None:
        change["accuracy"] = _share_or_any(accuracy)
    if cost is not None:
        change["cost"] = _number_or_any(cost, "--cost")
    if prefer is not None:
        change["prefer"] = prefer
    if not change and not image:
        raise InvalidInput(
            "nothing is to be changed; `modelless tasks set --help` says what can be"
        )
    said: list[str] = []
    with connect(url) as client:
        match bool(change), bool(image):
            case True, True:  # both at once, or neither
                row = client.patch(at("v1", "tasks", task), {"slo": change, "image": image})
            case True, False:
                row = client.patch(at("v1", "tasks", task, "slo"), change)
            case _:
                row = client.patch(at("v1", "tasks", task, "image"), image)
        if change:
            said.append(slo_words(row["slo"]))
            said.extend(filter(None, [unanswered(row)]))
        if image:
            said.append(f"pictures are {image_words(row['image'])}")
    emit(row, output, lambda: typer.echo("\n".join(f"{task}: {words}" for words in said)))


@tasks.command("remove")
def remove(
    task: TaskArgument,
    yes: YesOption = False,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Remove a task with all its models, for good.

    Queries that are under way are answered. Workers unload its variants, and then the artifacts are
    deleted that nothing else uses. Its name may be registered again at once.
    """
    with connect(url) as client:
        row = client.get(at("v1", "tasks", task))
        what = (
            f"{counted(row['models'], 'model')}, {counted(row['variants'], 'variant')} in service"
        )
        confirm(f"Remove task {task} with all of it ({what})?", yes)
        row = client.delete(at("v1", "tasks", task))
    emit(
        row, output, lambda: typer.echo(printable(f"task {task} is removed: {removed_words(row)}"))
    )


@tasks.command("label")
def label(
    task: TaskArgument,
    labels: Annotated[
        str,
        typer.Argument(
            metavar="LABELS",
            help="Names of the classes in the order of the scores, as 'cat,dog' or @FILE with one "
            "on each line; '' takes them away.",
        ),
    ],
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Say what the classes of a task are called.

    \b
    modelless tasks label churn leaves,stays
    """
    names = parse_labels(labels) if labels else ()
    with connect(url) as client:
        row = client.put(at("v1", "tasks", task, "labels"), {"labels": names})
    emit(row, output, lambda: typer.echo(printable(f"{task}: {label_words(row['labels'])}")))


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

    \b
    modelless tasks share digits --ttl-s 300
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


tasks.command("tokenizer")(tokenizer)


# -- for people ---------------------------------------------------------------------------------


def _task_table(rows: list[Row]) -> None:
    table(
        ["TASK", ">MODELS", ">VARIANTS", ">BEST", "INPUTS → OUTPUTS"],
        (
            [
                row["name"],
                str(row["models"]),
                str(row["variants"]),
                percent(row["best_accuracy"]),
                " → ".join(", ".join(map(tensor, row[side])) for side in ("inputs", "outputs")),
            ]
            for row in rows
        ),
        empty="There are no tasks; `modelless register` makes one.",
    )
    for row in rows:
        if said := contradicted_words(row):
            note(f"{row['name']}: {said}")
        if row.get("answers_changed"):
            note(f"{row['name']}: answers are {task_words(row)}")


def _number_or_any(text: str, option: str) -> float | None:
    """The number that a text is; None for ``any``.

    Raises:
        InvalidInput: it is neither.
    """
    if text == "any":
        return None
    try:
        number = read_number(text)
    except ValueError:
        number = nan
    if not isfinite(number):
        raise InvalidInput(f"{option} must be a number or 'any', not {text[:40]!r}")
    return number


def _share_or_any(text: str) -> float | None:
    """The accuracy that a text is; None for ``any``.

    Raises:
        InvalidInput: it is neither; 97 is told how 97 % is written.
    """
    try:
        share = _number_or_any(text, "--accuracy")
    except InvalidInput:
        share = nan
    if share is None or 0 <= share <= 1:
        return share
    said = f"--accuracy must be from 0 to 1{as_share('accuracy')}, or 'any', not {text[:40]!r}"
    raise InvalidInput(said)


def _image_change(mean: str | None, std: str | None) -> dict[str, list[float]]:
    """
    Raises:
        InvalidInput: a text is no number.
    """
    given = {"mean": mean, "std": std}
    return {
        name: list(numbers_in(text, f"--image-{name}"))
        for name, text in given.items()
        if text is not None
    }


def _task_details(row: Row) -> None:
    slo = row["slo"]
    details(
        [
            ("task", row["name"]),
            ("inputs", ", ".join(map(tensor, row["inputs"]))),
            ("outputs", ", ".join(map(tensor, row["outputs"]))),
            ("labels", ", ".join(row["labels"]) or "-"),
            ("metric", f"{row['metric']}: {row['accuracy_means']}"),
            ("latency", f"{figure(slo['latency_ms'], 3)} ms unless asked otherwise"),
            ("accuracy", floor_words(slo["accuracy"])),
            ("cost", ceiling_words(slo["cost"])),
            ("prefer", slo["prefer"]),
            ("models", str(row["models"])),
            ("variants", variants_words(row)),
            *([("feedback", said)] if (said := contradicted_words(row)) else []),
            ("answers", task_words(row)),
            ("equal queries", sharing_words(row["sharing"])),
            ("pictures", image_words(row.get("image"))),
            ("texts", text_words(row.get("text"))),
            *([("lengths", length_words(row))] if row.get("lengths") or row.get("bucket") else []),
        ]
    )
