"""``tasks tokenizer``: a task that was registered without one takes texts from now on."""

from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from controlplane.building.types import RegistrationLimits
from controlplane.cli.commands.names import TaskArgument
from controlplane.cli.model_options.options import TextInputsOption
from controlplane.cli.model_options.texts import parse_text_inputs
from controlplane.cli.outcome import Output, OutputOption, emit
from variants.errors import Conflict, NotFound, TaskNotFound, VariantNotLoadable
from variants.figures import counted
from variants.types import Event, Stage, Task, TaskName

if TYPE_CHECKING:
    from variants.artifacts.protocol import ArtifactStore
    from variants.types import CatalogSnapshot


def tokenizer(
    task: TaskArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The tokenizer.json of its models.")],
    text_inputs: TextInputsOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Let a task take texts that lacks a tokenizer.

    It was registered without one. Its models stay as they are. Queries with numbers of tokens are
    answered as before; those with texts are taken from then on.

    \b
    modelless tasks tokenizer sentiment tokenizer.json
    modelless variants judge sentiment --eval texts.csv --dry-run
    """
    from controlplane.building.texts import text_of_task
    from controlplane.cli.known_everywhere import wait_until_known
    from controlplane.cli.state_settings import installed
    from controlplane.cluster.head import store_of
    from controlplane.settings import load_settings
    from controlplane.startup.presence import as_running
    from controlplane.timestamps import timestamp
    from controlplane.views.catalog.tasks import named_tasks
    from variants.catalog.sql import open_catalog

    settings = as_running(installed(load_settings()))
    given = dict(parse_text_inputs(text_inputs))
    with closing(open_catalog(settings.catalog_url)) as catalog:
        known = catalog.snapshot()
        names = named_tasks(known, task)
        parts = [one for one in known.tasks if one.name in names]
        sources, limits = _sources(known, store_of(settings)), RegistrationLimits()
        texts = {
            one.name: text_of_task(one, file, given, limits, sources.get(one.name, {}))
            for one in parts
        }
        data = file.read_bytes()

        def reading(one: Task) -> Task:
            if one.name not in texts:  # a length that was added meanwhile
                raise Conflict(f"{one.name} was registered a moment ago: run it again")
            return replace(one, text=texts[one.name])

        try:
            catalog.change_tasks((TaskName(task),), reading, data)
        except NotFound as error:  # somebody has removed it meanwhile
            raise TaskNotFound(error.message) from error
        text = next(reversed(texts.values()))
        said = f"takes texts by the tokenizer {text.tokenizer[:12]}"
        catalog.add_event(Event(at=timestamp(), kind="tokenizer_set", subject=task, message=said))
    wait_until_known(settings)
    body = {
        "task": task,
        "tokenizer": text.tokenizer,
        "ids": text.ids,
        "mask": text.mask,
        "types": text.types,
    }
    emit(body, output, lambda: _say(task, said, parts))


def _sources(known: "CatalogSnapshot", store: "ArtifactStore") -> dict[TaskName, dict[str, Path]]:
    """The ONNX files that versions which are not retired were made of, by task and label."""
    found: dict[TaskName, dict[str, Path]] = {}
    for one in known.versions:
        if one.format == "onnx" and one.stage is not Stage.RETIRED:
            with suppress(VariantNotLoadable):  # which is told elsewhere
                found.setdefault(one.task, {})[one.label] = store.sound(one.source)
    return found


def _say(task: str, said: str, parts: list[Task]) -> None:
    lengths = sorted(one.bucket.length for one in parts if one.bucket is not None)
    more = f", at {counted(len(lengths), 'length')}" if lengths else ""
    typer.echo(f"{task}: {said}{more}")
    typer.echo(
        f"`modelless variants judge {task} --eval texts.csv --dry-run` says whether its models"
        " read them right"
    )
