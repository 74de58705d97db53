"""``promote``, ``retire``, ``remove``, ``quarantine``: which versions and variants may answer."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from controlplane.cli.commands.names import (
    ModelArgument,
    TaskArgument,
    VariantArgument,
    VersionArgument,
)
from controlplane.cli.confirmation import YesOption, confirm, removed_words
from controlplane.cli.gateway_client import Client, UrlOption, at, connect
from controlplane.cli.outcome import Output, OutputOption, emit
from controlplane.cli.render import clock_cell, percent, printable, table
from variants.catalog.validity.absent import no_version_of
from variants.errors import SeveralMeant
from variants.types import Stage

Row = Mapping[str, Any]


def promote(
    task: TaskArgument,
    model: ModelArgument,
    version: Annotated[
        int | None,
        typer.Argument(
            metavar="VERSION",
            min=1,
            help="Number of a version; else the newest, where it is clear that this one is meant.",
        ),
    ] = None,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a model version live: its variants may answer any query that they fit.

    Where the newest was taken out of service or found worse, or another one proves itself as a
    canary, it changes nothing and asks which version is meant.

    \b
    modelless promote churn churn 2
    """
    _move(task, model, version, Stage.LIVE, url, output)


def retire(
    task: TaskArgument,
    model: ModelArgument,
    version: VersionArgument,
    yes: YesOption = False,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Take a model version out of service; promote brings it back, delete removes it.

    Of the only live version of a task it is asked first.
    """
    _move(task, model, version, Stage.RETIRED, url, output, yes)


def delete(
    task: TaskArgument,
    model: ModelArgument,
    version: Annotated[
        int, typer.Argument(metavar="VERSION", min=1, help="Number of a retired version.")
    ],
    yes: YesOption = False,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete a retired model version for good, with the artifacts that nothing else uses.

    `modelless tasks remove` removes a whole task.
    """
    confirm(f"Delete {model}-v{version} of {task}?", yes)
    with connect(url) as client:
        row = client.delete(at("v1", "models", task, model, "versions", str(version)))
    words = f"{model}-v{version} is deleted: {removed_words(row)}"
    emit(row, output, lambda: typer.echo(printable(words)))


def _move(
    task: str,
    model: str,
    version: int | None,
    stage: Stage,
    url: str,
    output: Output,
    yes: bool = False,
) -> None:
    with connect(url) as client:
        versions: list[dict[str, Any]] = client.get(at("v1", "models", task, model))["versions"]
        row: dict[str, Any] = {} if version is not None else _promoted(client, task, model)
        number = version if version is not None else int(row["version"])
        # Of a task for rows of several lengths there is one in each bucket.
        stages = [one["stage"] for one in versions if one["version"] == number]
        before = next((one for one in stages if one != stage), stage if stages else None)
        if before is None:
            known = (int(one["version"]) for one in versions)
            raise no_version_of(f"model {model!r}", number, known)
        variants: list[Row] = client.get(at("v1", "tasks", task, "variants"))["variants"]
        name = f"{model}-v{number}"
        none_left = stage is not Stage.LIVE and all(
            one["stage"] != Stage.LIVE or one["model_version"] == name for one in variants
        )
        body: dict[str, Any] = {"stage": stage}
        last = none_left and before == Stage.LIVE
        if last:
            why = f"without it {task} has no live version, and queries that name no variant are"
            confirm(f"Retire {name}?", yes, because=f"{why} refused", refused="nothing was changed")
        if last or yes:
            body["allow_gap"] = True
        path = at("v1", "models", task, model, "versions", str(number), "stage")
        row = row or client.post(path, body)
    now = row["stage"]
    said = [f"{name} is {now} already" if before == now else f"{name} was {before}, now {now}"]
    back = row.get("stood_back", [])
    said += [_stood_back(task, one) for one in back]
    live = sorted(
        {
            one["version"]
            for one in versions
            if one["stage"] == Stage.LIVE and f"{model}-v{one['version']}" not in back
        }
    )
    if stage is Stage.LIVE:
        said += _beside(task, model, number, [one for one in live if one != number], variants)
    elif none_left:
        said.append(f"{task} has no live version: queries that name no variant are refused")
    emit(row, output, lambda: typer.echo("\n".join(map(printable, said))))


def _promoted(client: Client, task: str, model: str) -> dict[str, Any]:
    """The newest version, which is live now.

    Raises:
        SeveralMeant: another one may be meant; nothing was changed.
    """
    try:
        row: dict[str, Any] = client.post(at("v1", "models", task, model, "promote"), {})
    except SeveralMeant as error:  # the number follows the model: it has no option
        raise SeveralMeant(error.message, choices=error.choices, option="") from None
    return row


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
    task: TaskArgument,
    variant: VariantArgument,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Have all workers take back a variant that was repaired.

    They forget what it did until now. If it fails again, it is put into quarantine again.
    """
    with connect(url) as client:
        row = client.delete(at("v1", "quarantine", task, variant))
    emit(row, output, lambda: typer.echo(_words(row)))


def _stood_back(task: str, label: str) -> str:
    """What a version answers that was live, and whose vectors cannot be compared with others."""
    return (
        f"{label} was live, now canary, as vectors of two versions cannot be compared: it answers"
        f" queries that name it, as `modelless query {task} --model-version {label}` does"
    )


def _beside(
    task: str, model: str, number: int, live: Sequence[int], variants: Sequence[Row]
) -> Iterator[str]:
    """What a version that was promoted means where other versions of its model are live."""
    accuracy = dict.fromkeys((number, *live), 0.0)
    for version in accuracy:
        name = f"{model}-v{version}"
        known = (one["accuracy"] for one in variants if one["model_version"] == name)
        accuracy[version] = max(known, default=0.0)
    better = [version for version in live if accuracy[version] > accuracy[number]]
    if better:
        best = max(better, key=accuracy.__getitem__)
        yield (
            f"its accuracy is {percent(accuracy[number])} at best, that of {model}-v{best}"
            f" {percent(accuracy[best])}; queries that ask for no accuracy get the cheaper one"
        )
    for version in live:
        yield (
            f"{model}-v{version} is live as well; `modelless retire {task} {model} {version}`"
            " takes it out of service"
        )


# -- for people ---------------------------------------------------------------------------------


def _table(rows: Sequence[Row]) -> None:
    table(
        ["TASK", "VARIANT", "WORKER", "SINCE (UTC)", "WHY"],
        (
            [row["task"], row["variant"], row["worker"], clock_cell(row["since"]), row["why"]]
            for row in rows
        ),
        empty="Nothing is in quarantine.",
    )


def _words(row: Row) -> str:
    workers = ", ".join(row["workers"])
    return printable(f"{row['task']}/{row['variant']} is in quarantine no more on {workers}")
