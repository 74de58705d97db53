"""``modelless simulate``: a trace through production's own decisions, in simulated time."""

import gc
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controlplane.cli.divided_machines import split_of
from controlplane.cli.layout_results import (
    as_json_of,
    each_alone,
    kinds_of,
    show_changes,
    titled,
)
from controlplane.cli.outcome import JsonOption, Output, OutputOption, emit
from controlplane.cli.planning_files import CatalogOption, DevicesOption, ObjectiveOption
from controlplane.cli.simulation_results import show
from planner.eviction.registry import RULES
from planner.layouts import START_S
from planner.planning_settings import DEFAULTS
from planner.policies.registry import POLICIES
from planner.types import Objective
from variants.errors import InvalidInput

if TYPE_CHECKING:
    from planner.approximate.approximate import Approximation
    from planner.bounds.bound import Beside
    from planner.simulation.results import Report
    from planner.simulation.setting import Setting, Split

ALL = "all"
MOST_NOISE = 2.0
"""Beyond it one batch in twenty would take 27 times the median."""
GC_THRESHOLDS = (50_000, 20, 100)
"""Objects until the garbage collector looks. A simulation makes many objects and hardly any cycles;
with the interpreter's own thresholds an eighth of the time was spent on looking."""
SAMPLED = "modelless"
"""The policy that can be played by a sample."""

PolicyOption = Annotated[
    str,
    typer.Option(
        "--policy",
        metavar="POLICY",
        help=f"{', '.join(POLICIES)}, or all of them side by side.",
    ),
]
EvictionOption = Annotated[
    str, typer.Option("--eviction", metavar="RULE", help=f"{', '.join(RULES)}.")
]
SeedOption = Annotated[
    int, typer.Option("--seed", metavar="N", min=0, help="The same seed, the same result.")
]
TickOption = Annotated[float, typer.Option("--tick-s", metavar="S", help="Time between two plans.")]
ProvisionOption = Annotated[
    float | None,
    typer.Option(
        "--provision-s",
        metavar="S",
        help="From a device's order to its use: 30, or 10 for a worker with --layouts.",
        show_default=False,
    ),
]
PROVISION_S = 30.0
InstantOption = Annotated[
    bool, typer.Option("--instant", help="Runs and loads take no time: only a cache is left.")
]


def simulate(
    catalog: CatalogOption,
    devices: DevicesOption,
    trace: Annotated[
        Path,
        typer.Option("--trace", metavar="FILE", help="Queries, or their rates, over time, as CSV."),
    ],
    policy: PolicyOption = "modelless",
    objective: ObjectiveOption = Objective.COST,
    eviction: EvictionOption = "modelless",
    seed: SeedOption = 0,
    tick_s: TickOption = 10.0,
    provision_s: ProvisionOption = None,
    instant: InstantOption = False,
    failures_every_s: Annotated[
        float | None,
        typer.Option(
            "--failures-every-s", metavar="S", help="A worker fails this often; else none."
        ),
    ] = None,
    fixed_fleet: Annotated[
        bool,
        typer.Option(
            "--fixed-fleet",
            help="All devices are there throughout, as an installation runs by default.",
        ),
    ] = False,
    layouts: Annotated[
        str | None,
        typer.Option(
            "--layouts",
            metavar="TEXT",
            help="One machine that plans split: 1xcpu-4|2xcpu-2; and each layout by itself.",
        ),
    ] = None,
    linger_s: Annotated[
        float,
        typer.Option("--linger-s", metavar="S", help="As MODELLESS_LINGER_S, of our own policy."),
    ] = DEFAULTS.linger_s,
    peaks: Annotated[
        Path | None,
        typer.Option("--peaks", metavar="FILE", help="Peaks that were declared to us, as CSV."),
    ] = None,
    latency_error: Annotated[
        str,
        typer.Option(
            "--latency-error",
            metavar="LOW:HIGH",
            help="Devices take so many times as long as profiles say, drawn for each variant.",
        ),
    ] = "1:1",
    latency_noise: Annotated[
        float,
        typer.Option(
            "--latency-noise", metavar="SIGMA", help="Deviation of the logarithm of a batch's time."
        ),
    ] = 0.0,
    bound: Annotated[
        bool,
        typer.Option(
            "--bound",
            help="Add what no policy can beat, noise left out, and by how much it is missed.",
        ),
    ] = False,
    approximate: Annotated[
        bool,
        typer.Option(
            "--approximate",
            help="Play a sample of a trace of rates, for weeks and large fleets.",
        ),
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw it over time, as .html, .png or .svg."),
    ] = None,
    json: JsonOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Try a policy on a trace: violations, accuracy, cost, loads; nothing has to run.

    The decisions are those that serve in production, run in simulated time.

    \b
    modelless simulate --catalog catalog.csv --devices devices.csv \\
      --trace trace.csv --policy all --plot trace.html
    """
    from controlplane.files.catalog import catalog_snapshot, read_catalog, read_devices
    from controlplane.files.demand import read_trace
    from controlplane.files.peaks import read_peaks
    from controlplane.plots.plot_file import check_target, write_plot

    names = list(POLICIES) if policy == ALL else [_among("policy", policy, [*POLICIES, ALL])]
    _among("eviction rule", eviction, list(RULES))
    _time("--tick-s", tick_s, least=0.001)
    if provision_s is None:
        provision_s = START_S if layouts else PROVISION_S
    _time("--provision-s", provision_s, least=0)
    _time("--linger-s", linger_s, least=0)
    if failures_every_s is not None:
        _time("--failures-every-s", failures_every_s, least=0.001)
    error = _factors("--latency-error", latency_error)
    if not 0 <= latency_noise <= MOST_NOISE:
        raise InvalidInput(f"--latency-noise {latency_noise:g} is not from 0 to {MOST_NOISE:g}")
    if approximate and names != [SAMPLED]:
        raise InvalidInput(f"--approximate plays the policy {SAMPLED} only")
    if approximate and (instant or not tick_s.is_integer()):
        raise InvalidInput("--approximate needs time, and whole seconds for --tick-s")
    if approximate and objective is Objective.ENERGY:
        raise InvalidInput("--approximate counts no energy")
    if approximate and (bound or peaks is not None):
        raise InvalidInput("--approximate knows neither --bound nor --peaks")
    if layouts is not None and (
        names != [SAMPLED] or instant or fixed_fleet or approximate or bound
    ):
        raise InvalidInput(
            f"--layouts plays the policy {SAMPLED} only, and goes with none of --instant,"
            " --fixed-fleet, --approximate and --bound"
        )
    if plot is not None:
        check_target(plot)
    kinds = read_devices(devices)
    split = None if layouts is None else split_of(layouts, kinds, devices)
    offers = read_catalog(catalog, kinds, devices=devices)
    if split is not None:
        kinds = kinds_of(split, kinds)
        offers = tuple(one for one in offers if one.device_kind in split.cores)
    tasks = {offer.task for offer in offers}
    declared = () if peaks is None else read_peaks(peaks, tasks)
    from planner.simulate import bound as bound_of
    from planner.simulate import simulate as run
    from planner.simulation.setting import Setting

    setting = Setting(
        catalog=catalog_snapshot(offers, kinds),
        kinds=kinds,
        objective=objective,
        eviction=eviction,
        seed=seed,
        tick_s=tick_s,
        provision_s=provision_s,
        instant=instant,
        failures_every_s=failures_every_s,
        peaks=declared,
        elastic=False if fixed_fleet else None,
        linger_s=linger_s,
        split=split,
        latency_error=error,
        latency_noise=latency_noise,
    )
    reports = []
    sampled: dict[str, Any] = {}
    beside: list[Beside] = []
    alone: list[Report] = []
    if approximate:
        made = _approximated(setting, trace, tasks, catalog)
        reports.append(made.report)
        sampled = _sampled(made)
    else:
        queries = read_trace(trace, tasks, seed=seed, catalog=catalog)
        for name in names:
            with _progress(name) as progress, collected_rarely():
                clock = time.perf_counter
                reports.append(run(setting, queries, name, clock=clock, progress=progress))
        if bound:
            known = bound_of(setting, queries, reports)
            beside = [known.beside(report) for report in reports]
        for fixed in () if split is None else each_alone(setting, split):
            with collected_rarely():
                alone.append(run(fixed, queries, SAMPLED, clock=time.perf_counter))
    data = [{**as_json(report, seed), **sampled} for report in reports]
    if split is not None:
        data[0] |= as_json_of(reports[0], split, [as_json(one, seed) for one in alone])
    for one, missed in zip(data, beside, strict=False):
        one.update(asdict(missed))
    emit(
        data if policy == ALL else data[0],
        Output.JSON if json else output,
        lambda: _show(reports, beside, sampled, split, alone),
    )
    # Last: when the plot cannot be written, the numbers are out.
    if plot is not None:
        from controlplane.plots.simulation import simulation_drawing

        title = f"{trace.name}, objective {objective.value}"
        write_plot(plot, simulation_drawing(reports, title, beside))


def _approximated(
    setting: "Setting", trace: Path, tasks: Collection[str], catalog: Path
) -> "Approximation":
    from controlplane.files.demand import read_rates
    from planner.approximate.approximate import approximate

    rates = read_rates(trace, tasks, catalog=catalog)
    with _progress(SAMPLED) as progress:
        return approximate(setting, rates, clock=time.perf_counter, progress=progress)


def _sampled(made: "Approximation") -> dict[str, Any]:
    """What an estimate has beside its report."""
    return {
        "windows": made.windows,
        "played": made.played,
        "scale": made.scale,
        "violation_ratio_error": made.chance.violation_ratio,
        "effective_accuracy_error": made.chance.effective_accuracy,
    }


def as_json(report: "Report", seed: int) -> dict[str, Any]:
    """A report as plain JSON values, without its timeline; with energy where it was counted."""
    apart = ("policy", "timeline", "energy", "layout_changes")
    names = [one.name for one in fields(report) if one.name not in apart]
    return {
        "policy": report.policy,
        "seed": seed,
        **{name: getattr(report, name) for name in names},
        **({} if report.energy is None else asdict(report.energy)),
    }


def _among(what: str, name: str, known: Sequence[str]) -> str:
    if name not in known:
        raise InvalidInput(f"there is no {what} {name!r}; there are: {', '.join(known)}")
    return name


def _factors(option: str, text: str) -> tuple[float, float]:
    """Two positive factors, the lower first."""
    low, _, high = text.partition(":")
    try:
        found = (float(low), float(high))
    except ValueError:
        raise InvalidInput(f"{option} {text!r} is not of the form LOW:HIGH, as 0.7:1.5") from None
    if not 0 < found[0] <= found[1] < inf:
        raise InvalidInput(f"{option} {text} is not possible; two factors above 0, the lower first")
    return found


def _time(option: str, value: float, *, least: float) -> None:
    if not least <= value < inf:  # neither is it when it is not a number
        raise InvalidInput(f"{option} {value:g} is not possible; at least {least:g} s is needed")


@contextmanager
def collected_rarely() -> Iterator[None]:
    """Keep the garbage collector away from what is there, and call it less often.

    In a process that keeps it away from something already, that is left as it is.
    """
    before = gc.get_threshold()
    ours = gc.get_freeze_count() == 0
    if ours:
        gc.collect()
        gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        yield
    finally:
        if ours:
            gc.unfreeze()
        gc.set_threshold(*before)


@contextmanager
def _progress(name: str) -> "Iterator[Callable[[float], None] | None]":
    """A bar on a terminal, on standard error; nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    err = Console(stderr=True, highlight=False)
    if not err.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TaskProgressColumn(),
        Remaining(),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        row = bar.add_task(name, total=1.0)
        yield lambda done: bar.update(row, completed=done)


def _show(
    reports: "Sequence[Report]",
    beside: "Sequence[Beside]",
    sampled: Mapping[str, Any],
    split: "Split | None",
    alone: "Sequence[Report]",
) -> None:
    if split is None:
        show(reports, beside, sampled)
    else:
        show([*reports, *titled(alone, split)], beside, sampled)
        show_changes(reports[0])
