"""``repair``: build damaged artifacts again from their sources."""

import time
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controlplane.cli import render
from controlplane.cli.commands.names import AnyTaskArgument
from controlplane.cli.outcome import DONE, REFUSED, Output, OutputOption, emit
from controlplane.cli.progress import ProgressOption, ProgressStyle, interruptible, shown
from controlplane.cli.state_settings import StateDir, installed, read_settings

if TYPE_CHECKING:
    from controlplane.registry.repairing import Repair


def repair(
    task: AnyTaskArgument = None,
    variant: Annotated[
        str | None, typer.Argument(metavar="VARIANT", help="Only the artifact of this one.")
    ] = None,
    state_dir: StateDir = None,
    output: OutputOption = Output.TABLE,
    progress: ProgressOption = ProgressStyle.AUTO,
) -> None:
    """Read all stored artifacts, and build those that are damaged again from their sources.

    What is built again is kept if it is the same, byte for byte. A running system notices and loads
    it; it also does this by itself when a worker finds an artifact damaged.

    \b
    modelless repair                        everything
    modelless repair digits                 what belongs to a task
    """
    from controlplane.building.types import RegistrationLimits
    from controlplane.cluster.head import store_of
    from controlplane.registry.damage import artifacts_of, damages
    from controlplane.registry.repairing import repair_all
    from controlplane.views.catalog.tasks import find_task
    from planner.sentences import there_are
    from variants.catalog.sql import open_catalog
    from variants.errors import NotFound

    settings = installed(read_settings(state_dir=state_dir))
    began = time.monotonic()
    with (
        interruptible("what was repaired is kept"),
        closing(open_catalog(settings.catalog_url)) as catalog,
        shown(progress) as show,
    ):
        known = catalog.snapshot()
        if task is not None:
            find_task(known, task)
        store = store_of(settings)
        listed = artifacts_of(known, task, variant=variant)
        if variant is not None and not listed:
            names = [one.name for one in known.variants if one.task == task]
            raise NotFound(f"task {task!r} has no variant {variant!r}{there_are(names, variant)}")
        found = tuple(damages(listed, store.check, show))
        limits = RegistrationLimits(model_mib=settings.max_model_mib)
        repairs = repair_all(found, known, store, show, limits=limits)
    body = _body(len(listed), repairs, time.monotonic() - began)
    emit(body, output, lambda: _table(body))
    raise typer.Exit(DONE if all(one.done for one in repairs) else REFUSED)


def _body(checked: int, repairs: "Sequence[Repair]", seconds: float) -> dict[str, Any]:
    """What was repaired of so many artifacts that were read, as plain JSON values."""
    return {
        "checked": checked,
        "repairs": [
            {
                "artifact": one.damage.stored.digest,
                "subjects": list(one.damage.stored.subjects),
                "damage": one.damage.why,
                "repaired": one.done,
                "message": one.message,
            }
            for one in repairs
        ],
        "seconds": round(seconds, 3),
    }


def _table(body: dict[str, Any]) -> None:
    if body["repairs"]:
        render.table(
            ("ARTIFACT OF", "REPAIRED", "WHY"),
            [
                (", ".join(row["subjects"]), "yes" if row["repaired"] else "no", row["message"])
                for row in body["repairs"]
            ],
            empty="",
        )
    read = f"{body['checked']} artifacts read in {body['seconds']:,.1f} s"
    damaged = len(body["repairs"])
    typer.echo(f"{read}; {damaged} damaged" if damaged else f"{read}; all are what was registered")
