"""``variants build``: more variants of a model version that is registered already."""

import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from controlplane.cli.outcome import INTERRUPTED, Output, OutputOption, emit
from controlplane.cli.progress import (
    ProgressOption,
    ProgressStyle,
    shown,
    termination_as_interrupt,
)
from controlplane.cli.register import parse_kinds, result_body, result_table
from controlplane.registration_types import Thoroughness
from variants.errors import Conflict


def build(
    task: Annotated[str, typer.Argument(metavar="TASK", help="Name of a task.")],
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Name of a model.")],
    evaluation: Annotated[
        Path,
        typer.Option(
            "--eval",
            "--evaluation",
            metavar="FILE",
            help="Labelled rows (.npz) that nothing was trained or calibrated on.",
        ),
    ],
    version: Annotated[
        int | None,
        typer.Argument(metavar="VERSION", min=1, help="Number of a version; else the newest."),
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Rows to quantise with (.npz).")
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
    output: OutputOption = Output.TABLE,
    progress: ProgressOption = ProgressStyle.AUTO,
) -> None:
    """Build and measure variants that a registered version lacks.

    All of them are added or none. For when a back end was installed later, or training rows turned
    up.

    \b
    modelless variants build digits cnn --eval test.npz --variants openvino-int8
    """
    from controlplane.extension import extend
    from controlplane.machine import machine_kinds
    from controlplane.presence import as_running
    from controlplane.registration_types import RegistrationLimits, RegistrationRequest
    from controlplane.settings import load_settings
    from variants.sql import open_catalog
    from variants.store import FileArtifactStore

    settings = load_settings()
    request = RegistrationRequest(
        path=Path(),
        task=task,
        evaluation=evaluation,
        calibration=calibration,
        training=training,
        kinds=None if kinds is None else parse_kinds(kinds),
        measure=measure,
    )
    began = time.monotonic()
    try:
        with (
            closing(open_catalog(settings.catalog_url)) as catalog,
            termination_as_interrupt(),
            shown(progress) as show,
        ):
            result = extend(
                request,
                model,
                version,
                catalog,
                FileArtifactStore(settings.artifacts_dir),
                machine_kinds(as_running(settings)),
                show,
                limits=RegistrationLimits(model_mib=settings.max_model_mib),
            )
    except KeyboardInterrupt:
        print("interrupted: nothing was added", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    if not result.variants and not result.skipped:
        (one,) = result.versions
        raise Conflict(f"{one.label} has every variant that can be built here")
    seconds = time.monotonic() - began
    emit(result_body(result, seconds), output, lambda: result_table(result, seconds))
