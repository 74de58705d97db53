"""``profile``: measure what has no true profile here, and draw what is known."""

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from controlplane.cli import render
from controlplane.cli.outcome import INTERRUPTED, Output, OutputOption, emit
from controlplane.cli.progress import (
    ProgressOption,
    ProgressStyle,
    shown,
    termination_as_interrupt,
)
from variants.errors import RuntimeFailed


def profile(
    task: Annotated[
        str | None, typer.Argument(metavar="TASK", help="Name of a task; else all tasks.")
    ] = None,
    variant: Annotated[
        str | None,
        typer.Argument(metavar="VARIANT", help="Measure this one, whatever its profile says."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Measure all variants again, not only where it is needed.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be measured, and why.")
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Draw accuracy, latency, cost and batches: an .html or .png file."
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
    progress: ProgressOption = ProgressStyle.AUTO,
) -> None:
    """Measure variants on this machine: those never measured, doubted, stale or only predicted.

    Each profile is kept as soon as it is measured, so Ctrl-C loses one. A running system takes the
    new profiles over by itself; what it does meanwhile makes measurements slower.

    \b
    modelless profile                       what needs it
    modelless profile digits --plot p.html  and draw the task's variants
    """
    from controlplane.family_plot import plot_family
    from controlplane.machine import machine_kinds
    from controlplane.plots import check_target
    from controlplane.presence import as_running
    from controlplane.profiling import measure_wanted, to_measure
    from controlplane.settings import load_settings
    from variants.sql import open_catalog
    from variants.store import FileArtifactStore

    if plot is not None:
        check_target(plot)
    settings = load_settings()
    catalog = open_catalog(settings.catalog_url)
    began = time.monotonic()
    try:
        found = to_measure(
            catalog.snapshot(),
            machine_kinds(as_running(settings)),
            catalog.profiling_requests(),
            task=task,
            variant=variant,
            everything=everything,
        )
        measured = 0
        failures: tuple[str, ...] = ()
        if not dry_run:
            store = FileArtifactStore(settings.artifacts_dir)
            with termination_as_interrupt(), shown(progress) as show:
                measured, failures = measure_wanted(found, catalog, store, show)
        if plot is not None:
            plot_family(catalog.snapshot(), plot, task=task)
    except KeyboardInterrupt:
        print("interrupted: what was measured is kept", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    finally:
        catalog.close()
    body = {
        "profiles": [
            {
                "task": one.variant.task,
                "variant": one.variant.name,
                "device_kind": one.kind.name,
                "cause": one.cause.value,
                "reason": one.reason,
            }
            for one in found
        ],
        "measured": measured,
        "failures": list(failures),
        "seconds": round(time.monotonic() - began, 3),
    }
    emit(body, output, lambda: _table(body, dry_run=dry_run, plot=plot))
    if failures and not measured:
        raise RuntimeFailed("nothing could be measured")


def _table(body: dict[str, Any], *, dry_run: bool, plot: Path | None) -> None:
    render.table(
        ("TASK", "VARIANT", "DEVICE", "CAUSE", "REASON"),
        [
            (row["task"], row["variant"], row["device_kind"], row["cause"], row["reason"])
            for row in body["profiles"]
        ],
        empty="All profiles are true: there is nothing to measure.",
    )
    for failure in body["failures"]:
        typer.echo(f"failed: {failure}")
    if body["profiles"] and not dry_run:
        typer.echo(f"measured {body['measured']} in {body['seconds']:.1f} s")
    if plot is not None:
        typer.echo(f"drawn: {plot}")
