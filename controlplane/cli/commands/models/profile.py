"""``profile``: measure variants whose profile is missing or doubted, and draw what is known."""

import time
from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controlplane.cli import render
from controlplane.cli.commands.names import AnyTaskArgument
from controlplane.cli.outcome import Output, OutputOption, emit
from controlplane.cli.progress import (
    ProgressOption,
    ProgressStyle,
    interruptible,
    say_waits,
    shown,
)
from variants.errors import RuntimeFailed

if TYPE_CHECKING:
    from controlplane.profiling.due.profiles import DueProfile

NOTHING = "All profiles are true: there is nothing to measure."
NOTHING_KNOWN = (
    "Nothing is missing or asked for; whether profiles are true on their nodes is not known here:"
    " the control loop looks."
)


VariantArgument = Annotated[
    str | None,
    typer.Argument(metavar="VARIANT", help="Measure this one, whatever its profile says."),
]
AllOption = Annotated[
    bool, typer.Option("--all", help="Measure all variants again, not only where it is needed.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Only say what would be measured, and why.")
]
PlotOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Draw accuracy, latency, cost and batches, as .html, .png or .svg.",
    ),
]


def profile(
    task: AnyTaskArgument = None,
    variant: VariantArgument = None,
    everything: AllOption = False,
    dry_run: DryRunOption = False,
    plot: PlotOption = None,
    output: OutputOption = Output.TABLE,
    progress: ProgressOption = ProgressStyle.AUTO,
) -> None:
    """Measure variants on this machine: those never measured, doubted, stale or only predicted.

    On a cluster they are measured where workers run: this command asks the control loop for it.
    Each profile is kept as soon as it is measured, so Ctrl-C loses one. A running system takes the
    new profiles over by itself; what it does meanwhile makes measurements slower.

    \b
    modelless profile                       what needs it
    modelless profile digits --plot p.html  and draw the task's variants
    """
    from controlplane.cli.state_settings import installed
    from controlplane.cluster.head import store_of
    from controlplane.machine import machine_kinds
    from controlplane.plots.family import family_drawing
    from controlplane.plots.plot_file import check_target, write_plot
    from controlplane.profiling.due import profiles
    from controlplane.profiling.measuring_lock import measuring_first
    from controlplane.profiling.remeasuring import measure_due
    from controlplane.settings import load_settings
    from controlplane.startup.presence import as_running
    from controlplane.timestamps import timestamp
    from variants.catalog.sql import open_catalog

    if plot is not None:
        check_target(plot)
    settings = as_running(installed(load_settings()))
    on_cluster = bool(settings.ray_address)
    began = time.monotonic()
    measured = 0
    failures: tuple[str, ...] = ()
    with (
        interruptible("what was measured is kept"),
        closing(open_catalog(settings.catalog_url)) as catalog,
    ):
        here = not (on_cluster or dry_run)
        with measuring_first(settings.run_dir, say_waits) if here else nullcontext():
            found = profiles.to_measure(
                catalog.snapshot(), machine_kinds(settings), catalog.profiling_requests(),
                task=task, variant=variant, everything=everything,
                hosts=profiles.hosts_unknown if on_cluster else profiles.hosts_here,
            )  # fmt: skip
            if here:
                store = store_of(settings)
                with shown(progress) as show:
                    measured, failures = measure_due(found, catalog, store, show)
            elif not dry_run:
                catalog.request_profiling(profiles.requests_for(found, timestamp()), anew=True)
        if plot is not None:
            write_plot(plot, family_drawing(catalog.snapshot(), task))
    body = _body(found, measured, failures, time.monotonic() - began)
    body["ordered"] = len(found) if on_cluster and not dry_run else 0
    nothing = NOTHING_KNOWN if on_cluster else NOTHING
    emit(body, output, lambda: _table(body, nothing, dry_run=dry_run, plot=plot))
    if failures and not measured:
        raise RuntimeFailed("nothing could be measured")


def _body(
    found: "Sequence[DueProfile]", measured: int, failures: Sequence[str], seconds: float
) -> dict[str, Any]:
    """What was to be measured and what came of it, as plain JSON values."""
    return {
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
        "seconds": round(seconds, 3),
    }


def _table(body: dict[str, Any], nothing: str, *, dry_run: bool, plot: Path | None) -> None:
    render.table(
        ("TASK", "VARIANT", "DEVICE", "CAUSE", "REASON"),
        [
            (row["task"], row["variant"], row["device_kind"], row["cause"], row["reason"])
            for row in body["profiles"]
        ],
        empty=nothing,
    )
    for failure in body["failures"]:
        typer.echo(f"failed: {failure}")
    if body["ordered"]:
        typer.echo(
            f"asked for {body['ordered']}: the control loop has them measured where workers run,"
            " and `modelless events list` tells what came of it"
        )
    elif body["profiles"] and not dry_run:
        typer.echo(f"measured {body['measured']} in {body['seconds']:,.1f} s")
    if plot is not None:
        typer.echo(f"drawn: {plot}")
