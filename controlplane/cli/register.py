"""``register``: add a model to a task."""

import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controlplane.cli import render
from controlplane.cli.outcome import INTERRUPTED, Output, OutputOption, emit
from controlplane.cli.progress import (
    ProgressOption,
    ProgressStyle,
    shown,
    termination_as_interrupt,
)
from controlplane.registration_types import Thoroughness
from variants.errors import InvalidInput
from variants.types import DEFAULT_LATENCY_MS, Prefer, Slo, Stage

if TYPE_CHECKING:
    from controlplane.registration_types import Progress, RegistrationResult

MAX_LABELS_BYTES = 1 << 24


def register(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="An .onnx or .pt2 file, or a folder MODEL/VERSION/FILE."
        ),
    ],
    task: Annotated[
        str, typer.Option("--task", "-t", metavar="TASK", help="The task that the model answers.")
    ],
    evaluation: Annotated[
        Path,
        typer.Option(
            "--eval",
            "--evaluation",
            metavar="FILE",
            help="Labelled rows (.npz): an array for each input, and integer 'labels'.",
        ),
    ],
    calibration: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Rows to quantise with (.npz); else some of the evaluation rows."
        ),
    ] = None,
    training: Annotated[
        Path | None,
        typer.Option(
            "--training",
            "--train",
            metavar="FILE",
            help="The rows (.npz) that the model was trained on: for pruning and distillation.",
        ),
    ] = None,
    kinds: Annotated[
        str | None,
        typer.Option(
            "--variants",
            metavar="KINDS",
            help="Kinds to build: 'onnx-int8,openvino-bf16'; else all that can be built here.",
        ),
    ] = None,
    measure: Annotated[
        Thoroughness,
        typer.Option(
            help="Measure all of the grid, or a fifth and predict the rest; else as time allows."
        ),
    ] = Thoroughness.AUTO,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Names of the classes: 'cat,dog', or @FILE with one on each line."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "--name",
            metavar="NAME",
            help="Name of the model; else the file's or folder's name.",
        ),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(metavar="NAME", help="How accuracy is counted; else top1.")
    ] = None,
    latency_ms: Annotated[
        float | None, typer.Option(metavar="MS", help="A new task's default deadline.", min=0.001)
    ] = None,
    accuracy: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="A new task's default floor, from 0 to 1.", min=0, max=1
        ),
    ] = None,
    cost: Annotated[
        float | None,
        typer.Option(metavar="USD", help="A new task's default ceiling per 1,000 queries.", min=0),
    ] = None,
    prefer: Annotated[
        Prefer | None, typer.Option(help="What a new task optimises by default.")
    ] = None,
    stage: Annotated[
        Stage | None,
        typer.Option(
            help="Stage of the version; else live for a first one, canary for later ones."
        ),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Keep looking at the folder; new versions become candidates."),
    ] = False,
    interval_s: Annotated[
        float,
        typer.Option("--interval", metavar="S", help="Time between two looks.", min=0.01),
    ] = 5.0,
    output: OutputOption = Output.TABLE,
    progress: ProgressOption = ProgressStyle.AUTO,
) -> None:
    """Add a model: check it, build its variants, measure them, and write the catalog.

    Nothing is left behind when this fails or is interrupted.

    \b
    modelless register cnn.onnx --task digits --eval test.npz
    modelless register models/cnn --task digits --eval test.npz --watch
    """
    from controlplane.cli.watching import watch_versions
    from controlplane.machine import machine_kinds
    from controlplane.presence import as_running
    from controlplane.registration import RegistrationLimits, RegistrationRequest
    from controlplane.registration import register as register_model
    from controlplane.settings import load_settings
    from variants.sql import open_catalog
    from variants.store import FileArtifactStore

    request = RegistrationRequest(
        path=path,
        task=task,
        evaluation=evaluation,
        calibration=calibration,
        training=training,
        kinds=None if kinds is None else parse_kinds(kinds),
        measure=measure,
        labels=None if labels is None else parse_labels(labels),
        model=model,
        metric=metric,
        slo=default_slo(latency_ms=latency_ms, accuracy=accuracy, cost=cost, prefer=prefer),
        stage=stage,
    )
    settings = load_settings()
    try:
        settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise InvalidInput(
            f"the state directory {settings.state_dir} cannot be made: {error.strerror};"
            " set MODELLESS_STATE_DIR"
        ) from error

    def run(
        request: RegistrationRequest, show: Callable[["Progress"], None]
    ) -> "RegistrationResult":
        return register_model(
            request,
            catalog,
            FileArtifactStore(settings.artifacts_dir),
            machine_kinds(as_running(settings)),
            show,
            limits=RegistrationLimits(model_mib=settings.max_model_mib),
        )

    began = time.monotonic()
    try:
        with termination_as_interrupt(), closing(open_catalog(settings.catalog_url)) as catalog:
            if watch:
                watch_versions(request, catalog, run, interval_s, output, progress)
            with shown(progress) as show:
                result = run(request, show)
    except KeyboardInterrupt:
        print("interrupted: nothing was registered", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    seconds = time.monotonic() - began
    emit(result_body(result, seconds), output, lambda: result_table(result, seconds))


def parse_kinds(text: str) -> tuple[str, ...]:
    """``onnx-int8,openvino-bf16``; which there are is for the registration to say.

    Raises:
        InvalidInput: one is empty.
    """
    kinds = tuple(kind.strip() for kind in text.split(","))
    if not all(kinds):
        raise InvalidInput("a kind of variant is empty; give them as 'onnx-int8,openvino-bf16'")
    return kinds


def parse_labels(text: str) -> tuple[str, ...]:
    """``a,b,c``, or ``@FILE`` with one label on each line.

    Raises:
        InvalidInput: a label is empty, or the file cannot be read.
    """
    if text.startswith("@"):
        path = Path(text[1:])
        try:
            if path.stat().st_size > MAX_LABELS_BYTES:
                raise InvalidInput(f"{path.name}: is too large for a list of labels")
            found = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise InvalidInput(f"{path.name}: the labels cannot be read: {reason}") from error
    else:
        found = text.split(",")
    labels = tuple(label.strip() for label in found)
    if not labels or not all(labels):
        raise InvalidInput("a label is empty; give them as 'cat,dog' or @FILE")
    return labels


def default_slo(
    *,
    latency_ms: float | None,
    accuracy: float | None,
    cost: float | None,
    prefer: Prefer | None,
) -> Slo | None:
    """A task's defaults; ``None`` when nothing was said."""
    if latency_ms is None and accuracy is None and cost is None and prefer is None:
        return None
    return Slo(
        latency_ms=DEFAULT_LATENCY_MS if latency_ms is None else latency_ms,
        accuracy=accuracy,
        cost=cost,
        prefer=prefer or Prefer.COST,
    )


def result_body(result: "RegistrationResult", seconds: float) -> dict[str, Any]:
    """What was registered, as plain JSON values."""
    return {
        "task": result.task.name,
        "versions": [
            {"model": v.model, "version": v.version, "stage": v.stage.value, "source": v.source}
            for v in result.versions
        ],
        "variants": [
            {
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
                    if p.variant == v.name
                ],
            }
            for v in result.variants
        ],
        "skipped": [{"name": s.name, "reason": s.reason} for s in result.skipped],
        "unchanged": list(result.unchanged),
        "seconds": round(seconds, 3),
    }


def result_table(result: "RegistrationResult", seconds: float) -> None:
    from controlplane.frontier import dominated

    rows = []
    beaten = dominated(result.variants, result.profiles)
    for profile in result.profiles:
        variant = next(v for v in result.variants if v.name == profile.variant)
        fastest = max(point.batch_size / point.p50_ms for point in profile.points)
        rows.append(
            (
                "" if (profile.device_kind, variant.name) in beaten else "*",
                variant.name,
                profile.device_kind,
                render.percent(variant.accuracy),
                render.ms(profile.points[0].p95_ms),
                f"{1000 * fastest:,.0f}",
                render.mib(profile.memory_mib),
                f"{1000 * profile.load_s:.1f}",
                render.mib(variant.size_bytes / 2**20),
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
    for label in result.unchanged:
        typer.echo(f"unchanged: {label}")
    stages = ", ".join(f"{v.label} ({v.stage.value})" for v in result.versions)
    counted = ""
    if result.variants:
        rows_judged = result.variants[0].accuracy_rows
        counted = f"; accuracy on {rows_judged:,} rows that nothing was calibrated on"
    typer.echo(f"task {result.task.name}: {stages} in {seconds:.1f} s{counted}")
