"""What commands print of a registration: as plain JSON values, and as a table for people."""

from collections.abc import Mapping, Sequence, Sized
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import typer

from controlplane.cli import render
from variants.figures import counted, figure
from variants.types import Digest, Stage, TaskName

if TYPE_CHECKING:
    from controlplane.building.build_cache import BuildCache
    from controlplane.building.types import RegistrationResult
    from variants.types import ModelVersion, Task, Variant


LEFT_OUT = ": left out"
"""How the note of a variant ends of which larger batches took too much memory."""


def result_body(result: "RegistrationResult", seconds: float) -> dict[str, Any]:
    """What was registered, as plain JSON values."""
    return {
        "task": asked_name(result.task),
        "versions": [
            {
                "task": v.task,
                "model": v.model,
                "version": v.version,
                "stage": v.stage.value,
                "source": v.source,
            }
            for v in result.versions
        ],
        "variants": [
            {
                "task": v.task,
                "name": v.name,
                "model": v.model,
                "version": v.version,
                "runtime": v.runtime,
                "precision": v.precision.value,
                "accuracy": v.accuracy,
                "accuracy_rows": v.accuracy_rows,
                "size_bytes": v.size_bytes,
                "artifact": v.artifact,
                "profiles": [
                    {
                        "device_kind": p.device_kind,
                        "memory_mib": p.memory_mib,
                        "load_s": p.load_s,
                        "points": [asdict(point) for point in p.points],
                    }
                    for p in result.profiles
                    if (p.task, p.variant) == v.key
                ],
            }
            for v in result.variants
        ],
        "skipped": [{"name": s.name, "reason": s.reason} for s in result.skipped],
        "unchanged": list(result.unchanged),
        "doubts": list(result.doubts),
        "repaired": list(result.repaired),
        "reused": {
            "built": list(result.reused.built),
            "measured": list(result.reused.measured),
        },
        "seconds": round(seconds, 3),
    }


def asked_name(task: "Task") -> str:
    """The name that clients ask: of a bucket, that of all its buckets."""
    return task.name if task.bucket is None else task.bucket.of


def what_it_answers(version: "ModelVersion") -> str:
    """Which queries a version may answer from now on, and how to change that."""
    named = f"{version.task} {version.model} {version.version}"
    match version.stage:
        case Stage.LIVE:
            return (
                f"{version.label} may answer any query of {version.task} from now on;"
                f" `modelless retire {named}` ends that, and `register --stage canary` would have"
                " let it answer only queries that name one of its variants"
            )
        case Stage.CANARY:
            return (
                f"{version.label} answers only queries that name one of its variants, until"
                f" `modelless canary {named} --share 5%` gives it a share of the others or"
                f" `modelless promote {named}` makes it live"
            )
        case _:
            return f"{version.label} answers nothing until `modelless promote {named}`"


def body_table(body: Mapping[str, Any], *, quick: bool = False) -> None:
    """Print what was registered elsewhere, from its plain JSON values; ``quick``: by few rows."""
    rows = [
        (
            variant["name"],
            profile["device_kind"],
            render.percent(variant["accuracy"]),
            render.ms(profile["points"][0]["p95_ms"]),
            render.mib(profile["memory_mib"]),
        )
        for variant in body["variants"]
        for profile in variant["profiles"]
    ]
    head = ("variant", "on", ">accuracy", ">p95 ms, 1 row", ">memory MiB")
    render.table(head, rows, empty="Nothing was registered.")
    for skipped in body["skipped"]:
        typer.echo(render.printable(f"left out: {skipped['name']}: {skipped['reason']}"))
    for sentence in body["doubts"]:
        typer.echo(render.printable(f"doubtful: {sentence}"))
    _say_reused(body.get("reused") or {})
    for label in body["unchanged"]:
        typer.echo(render.printable(f"unchanged: {label}"))
    if stages := [f"{one['model']}-v{one['version']} ({one['stage']})" for one in body["versions"]]:
        said = f"task {body['task']}: {', '.join(stages)} in {body['seconds']:.1f} s"
        typer.echo(render.printable(said))
    if quick and body["variants"]:
        typer.echo(render.printable(_rest_of(body["task"])))


def result_table(
    result: "RegistrationResult",
    seconds: float,
    *,
    on_cluster: bool,
    new: bool = True,
    quick: bool = False,
) -> None:
    """Print it; on a cluster with a sentence on what is measured elsewhere.

    Args:
        new: whether its versions are, and not only some of their variants.
        quick: whether few rows judged it, and little was measured.
    """
    from controlplane.views.catalog_views import dominated

    rows = []
    beaten = {
        (task, *one)
        for task, variants in _by_task(result.variants).items()
        for one in dominated(variants, [p for p in result.profiles if p.task == task])
    }
    for profile in result.profiles:
        variant = next(v for v in result.variants if v.key == (profile.task, profile.variant))
        fastest = max(point.batch_size / point.p50_ms for point in profile.points)
        bucketed = result.task.bucket is not None
        rows.append(
            (
                "" if (variant.task, profile.device_kind, variant.name) in beaten else "*",
                f"{variant.task}/{variant.name}" if bucketed else variant.name,
                profile.device_kind,
                render.percent(variant.accuracy),
                render.ms(profile.points[0].p95_ms),
                f"{1000 * fastest:,.0f}",
                render.mib(profile.memory_mib),
                f"{1000 * profile.load_s:.1f}",
                figure(variant.size_bytes / 2**20),
            )
        )
    render.table(
        (
            "",
            "variant",
            "on",
            ">accuracy",
            ">p95 ms, 1 row",
            ">rows/s",
            ">memory MiB",
            ">load ms",
            ">file MiB",
        ),
        rows,
        empty="Nothing was registered.",
    )
    for skipped in result.skipped:
        typer.echo(f"left out: {skipped.name}: {skipped.reason}")
    for variant in result.variants:
        if variant.note.endswith(LEFT_OUT):
            typer.echo(f"{variant.name}: {variant.note.split('; ')[-1]}")
    for sentence in result.doubts:
        typer.echo(f"doubtful: {sentence}")
    _say_reused({"built": result.reused.built, "measured": result.reused.measured})
    for label in result.unchanged:
        typer.echo(f"unchanged: {label}")
    for sentence in result.repaired:
        typer.echo(f"damaged in the store: {sentence}")
    if not result.versions:
        return
    name = asked_name(result.task)
    versions = dict.fromkeys(
        replace(one, task=TaskName(name), source=Digest(""), created_at="")
        for one in result.versions
    )
    stages = ", ".join(f"{v.label} ({v.stage.value})" for v in versions)
    counted = ""
    if result.variants:
        judged = sorted({one.accuracy_rows for one in result.variants})  # by length, of buckets
        span = " to ".join(f"{one:,}" for one in dict.fromkeys((judged[0], judged[-1])))
        counted = f"; accuracy on {span} rows, those for calibration left out"
    typer.echo(f"task {name}: {stages} in {seconds:.1f} s{counted}")
    if quick and result.variants:
        for task in dict.fromkeys(one.task for one in result.variants):
            typer.echo(_rest_of(task))
    for version in versions if new else ():
        typer.echo(what_it_answers(version))
    if on_cluster and result.variants:
        typer.echo(
            "measured on this machine; where workers run on others, the control loop has it"
            " measured there: `modelless events list`"
        )


def _by_task(variants: "Sequence[Variant]") -> "dict[str, list[Variant]]":
    found: dict[str, list[Variant]] = {}
    for variant in variants:
        found.setdefault(variant.task, []).append(variant)
    return found


def _say_reused(reused: Mapping[str, Sized]) -> None:
    """How much was taken from the build cache, and how to do without."""
    built, measured = len(reused.get("built", ())), len(reused.get("measured", ()))
    if built or measured:
        typer.echo(
            f"from the build cache: {counted(built, 'variant')} built before, {measured} measured"
            " before; --fresh does all of it anew"
        )


def _rest_of(task: str) -> str:
    """What a quick registration has not done, and how to have it done."""
    return (
        f"quick: `modelless variants judge {task} --eval FILE` judges by all rows, and"
        f" `modelless profile {task}` measures what was predicted"
    )


def left_behind(absent: str, cache: "BuildCache | None", *, quick: bool) -> str:
    """What an interrupt leaves: nothing in the catalog, as ``absent`` says, and what is kept."""
    hint = "" if quick else "; --quick judges by fewer rows and measures less"
    if cache is None or not cache.has_kept:
        return f"{absent}{hint}"
    return (
        f"{absent}; what was built and measured is kept in {cache.root}, and the same command goes"
        f" on from there{hint}"
    )
