"""``promote`` and ``retire``: moving a model version to another stage."""

from typing import Annotated, Any

import typer

from controlplane.cli.gateway_client import UrlOption, at, connect
from controlplane.cli.outcome import Output, OutputOption, emit
from variants.errors import NotFound
from variants.types import Stage

TaskArgument = Annotated[str, typer.Argument(metavar="TASK", help="Name of a task.")]
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="Name of a model.")]


def promote(
    task: TaskArgument,
    model: ModelArgument,
    version: Annotated[
        int | None,
        typer.Argument(metavar="VERSION", min=1, help="Number of a version; else the newest."),
    ] = None,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a model version live: its variants may answer any query that they fit."""
    _move(task, model, version, Stage.LIVE, url, output)


def retire(
    task: TaskArgument,
    model: ModelArgument,
    version: Annotated[int, typer.Argument(metavar="VERSION", min=1, help="Number of a version.")],
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Take a model version out of service; nothing is deleted, and promote brings it back."""
    _move(task, model, version, Stage.RETIRED, url, output)


def _move(
    task: str, model: str, version: int | None, stage: Stage, url: str, output: Output
) -> None:
    with connect(url) as client:
        versions: list[dict[str, Any]] = client.get(at("v1", "models", task, model))["versions"]
        number = version if version is not None else versions[-1]["version"]
        before = next((one["stage"] for one in versions if one["version"] == number), None)
        if before is None:
            known = ", ".join(str(one["version"]) for one in versions)
            raise NotFound(f"model {model!r} has no version {number}; there are: {known}")
        row = client.post(
            at("v1", "models", task, model, "versions", str(number), "stage"), {"stage": stage}
        )
    said = f"{model}-v{number} was {before}, now {row['stage']}"
    emit(row, output, lambda: typer.echo(said))
