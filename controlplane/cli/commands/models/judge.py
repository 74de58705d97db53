"""``variants judge``: the accuracy of registered variants by other held-out rows."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controlplane.building.types import RegistrationLimits
from controlplane.cli.commands.names import TaskArgument
from controlplane.cli.model_options.options import EvaluationOption
from controlplane.cli.outcome import REFUSED, Output, OutputOption, emit
from controlplane.cli.progress import ProgressOption, ProgressStyle, interruptible, say_waits, shown
from controlplane.cli.render import percent, printable, table
from planner.sentences import there_are
from variants.catalog.validity.absent import no_version_of
from variants.errors import NotFound
from variants.figures import counted
from variants.types import Event, Stage

if TYPE_CHECKING:
    from controlplane.profiling.judging import Judged
    from variants.types import CatalogSnapshot, Task, Variant


def judge(
    task: TaskArgument,
    evaluation: EvaluationOption,
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="Only variants of this model.")
    ] = None,
    version: Annotated[
        int | None,
        typer.Argument(
            metavar="VERSION", min=1, help="Number of a version; else all that are not retired."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what their accuracy would be.")
    ] = False,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Run all rows again, whatever the build cache has of them."),
    ] = False,
    output: OutputOption = Output.TABLE,
    progress: ProgressOption = ProgressStyle.AUTO,
) -> None:
    """Judge registered variants again, by other held-out rows.

    Accuracy and agreement change, all at once; nothing is built, and what was measured of latency
    and memory stays. What runs goes by the new accuracy at once. This is for when the rows that a
    model is judged by have changed.

    \b
    modelless variants judge digits --eval this_month.npz --dry-run
    """
    from controlplane.profiling.judging import changes

    asked = _Chosen(task=task, model=model, version=version, evaluation=evaluation)
    found = _judged(asked, write=not dry_run, fresh=fresh, progress=progress)
    body = {
        "variants": list(changes(found)),
        "skipped": [{"variant": one.name, "reason": one.reason} for one in found.skipped],
        "doubts": list(found.doubts),
        "written": bool(found.now) and not dry_run,
    }
    emit(body, output, lambda: _table(body))
    if found.skipped:
        raise typer.Exit(REFUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """Which variants are to be judged, and by which rows."""

    task: str
    model: str | None
    version: int | None
    evaluation: Path


def _judged(asked: _Chosen, *, write: bool, fresh: bool, progress: ProgressStyle) -> "Judged":
    """Judge what is asked for, and write it into the catalog if that is wanted."""
    from controlplane.building.build_cache import cache_in
    from controlplane.building.text_encoding import rows_of_task
    from controlplane.building.work_folder import work_folder
    from controlplane.cli.known_everywhere import wait_until_known
    from controlplane.cli.state_settings import installed
    from controlplane.cluster.head import store_of
    from controlplane.machine import machine_kinds
    from controlplane.profiling.judging import by_text, judge_again, together
    from controlplane.profiling.measuring_lock import measuring_first
    from controlplane.settings import load_settings
    from controlplane.startup.presence import as_running
    from controlplane.timestamps import timestamp
    from variants.catalog.sql import open_catalog

    settings = as_running(installed(load_settings()))
    with (
        interruptible("no accuracy was changed"),
        measuring_first(settings.run_dir, say_waits),
        closing(open_catalog(settings.catalog_url)) as catalog,
        work_folder() as work,
        shown(progress) as show,
    ):
        known = catalog.snapshot()
        groups = [
            (of, text, variants)
            for of in _parts(known, asked.task)
            for text, variants in by_text(
                _asked(known, of.name, asked.model, asked.version), known.versions
            ).items()
        ]
        found = together(
            judge_again(
                of, variants,
                rows_of_task(
                    asked.evaluation, of, catalog.tokenizer, work / f"texts-{number}", own=text
                ),
                store_of(settings), machine_kinds(settings), show,
                limits=RegistrationLimits(model_mib=settings.max_model_mib),
                cache=cache_in(settings.build_cache_dir, settings.build_cache_mib, fresh=fresh),
            )
            for number, (of, text, variants) in enumerate(groups)
        )  # fmt: skip
        if found.now and write:
            catalog.put_judged(found.now)
            said = _said(found)
            catalog.add_event(
                Event(at=timestamp(), kind="judged", subject=asked.task, message=said)
            )
    if found.now and write:
        wait_until_known(settings)
    return found


def _parts(known: "CatalogSnapshot", name: str) -> "list[Task]":
    """The task of a name; of one that takes texts of several lengths all its buckets, of which each
    takes what it holds of a file.

    Raises:
        TaskNotFound: there is none.
    """
    from controlplane.views.catalog.tasks import find_task
    from variants.buckets import bucketed_named

    buckets = bucketed_named(known.tasks, name)
    if buckets is None or buckets.face.text is None:
        return [find_task(known, name)]
    return list(buckets.buckets)


def _asked(
    known: "CatalogSnapshot", task: str, model: str | None, number: int | None
) -> "tuple[Variant, ...]":
    """The variants of the task, of the model or of the version; else those of no retired one.

    Raises:
        NotFound: there are none.
    """
    models = {one.model for one in known.versions if one.task == task}
    if model is not None and model not in models:
        raise NotFound(f"task {task!r} has no model {model!r}{there_are(models, model)}")
    versions = {
        (one.model, one.version)
        for one in known.versions
        if one.task == task
        and model in (None, one.model)
        and (one.version == number if number else one.stage is not Stage.RETIRED)
    }
    found = tuple(
        one for one in known.variants if one.task == task and (one.model, one.version) in versions
    )
    if not found:
        what = f"task {task!r}" if model is None else f"model {model!r} of task {task!r}"
        if number is None:
            raise NotFound(f"{what} has no version that is not retired")
        numbers = (
            one.version for one in known.versions if one.task == task and model in (None, one.model)
        )
        raise no_version_of(what, number, numbers)
    return found


def _said(found: "Judged") -> str:
    """What an event tells: how the best one has changed, and by how many rows."""
    before, now = (max(one.accuracy for one in each) for each in (found.before, found.now))
    rows = max(one.accuracy_rows for one in found.now)
    variants = len(found.now)
    return (
        f"{counted(variants, 'variant')} by {counted(rows, 'row')}; the best accuracy was"
        f" {percent(before)} and is {percent(now)}"
    )


def _table(body: dict[str, Any]) -> None:
    if body["variants"]:
        several = len({row["task"] for row in body["variants"]}) > 1
        table(
            (
                *(("TASK",) if several else ()),
                "VARIANT",
                ">ACCURACY",
                ">ROWS",
                ">BEFORE",
                ">ROWS BEFORE",
            ),
            (
                (
                    *((row["task"],) if several else ()),
                    row["variant"],
                    percent(row["accuracy"]),
                    str(row["accuracy_rows"]),
                    percent(row["accuracy_before"]),
                    str(row["accuracy_rows_before"]),
                )
                for row in body["variants"]
            ),
            empty="",
        )
    for row in body["skipped"]:
        typer.echo(f"not judged, and as before: {row['variant']}: {printable(row['reason'])}")
    for sentence in body["doubts"]:
        typer.echo(f"doubtful: {printable(sentence)}")
    if body["variants"] and not body["written"]:
        typer.echo("nothing was written: this was a dry run")
