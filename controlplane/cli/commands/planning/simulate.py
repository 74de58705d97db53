"""``modelless simulate``: a trace through production's own decisions, in simulated time."""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from controlplane.cli.outcome import JsonOption, Output, OutputOption, emit
from controlplane.cli.planning.divided_machines import split_of
from controlplane.cli.planning.layout_results import each_alone, kinds_of
from controlplane.cli.planning.planning_files import CatalogOption, DevicesOption, ObjectiveOption
from controlplane.cli.planning.simulation_checks import (
    OURS,
    check_approximation,
    check_gateways,
    check_layouts,
)
from controlplane.cli.planning.simulation_results import Played, sampled
from planner.eviction.registry import RULES
from planner.layouts import START_S
from planner.planning_settings import DEFAULTS
from planner.policies.registry import POLICIES
from planner.types import Objective
from variants.errors import InvalidInput

if TYPE_CHECKING:
    from planner.simulation.setting import Setting, Split
    from planner.solver.problem import AvailableKind
    from variants.types import CatalogSnapshot, Peak

ALL = "all"
MOST_NOISE = 2.0
"""Beyond it one batch in twenty would take 27 times the median."""
GC_THRESHOLDS = (50_000, 20, 100)
"""Objects until the garbage collector looks. A simulation makes many objects and hardly any cycles;
with the interpreter's own thresholds an eighth of the time was spent on looking."""
PolicyOption = Annotated[
    str,
    typer.Option(
        "--policy",
        metavar="POLICY",
        help=f"{', '.join(POLICIES)}; or {ALL}: each of them, side by side.",
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
TraceOption = Annotated[
    Path,
    typer.Option("--trace", metavar="FILE", help="Queries, or their rates, over time, as CSV."),
]
FailuresOption = Annotated[
    float | None,
    typer.Option("--failures-every-s", metavar="S", help="A worker fails this often; else none."),
]
FixedFleetOption = Annotated[
    bool,
    typer.Option(
        "--fixed-fleet",
        help="All devices are there throughout, as an installation runs by default.",
    ),
]
LoadsInTurnOption = Annotated[
    bool,
    typer.Option(
        "--loads-in-turn/--loads-at-once",
        help="A device loads one variant after the other, as workers do; or all at once, beside "
        "each other.",
    ),
]
LayoutsOption = Annotated[
    str | None,
    typer.Option(
        "--layouts",
        metavar="TEXT",
        help="One machine that plans split: 1xcpu-4|2xcpu-2; and each layout by itself. A worker "
        "takes --provision-s to start, and a change has to pay within --linger-s.",
    ),
]
LingerOption = Annotated[
    float,
    typer.Option(
        "--linger-s", metavar="S", help="MODELLESS_LINGER_S of our own policy, in seconds."
    ),
]
PeaksOption = Annotated[
    Path | None,
    typer.Option("--peaks", metavar="FILE", help="Peaks that were declared to us, as CSV."),
]
LatencyErrorOption = Annotated[
    str,
    typer.Option(
        "--latency-error",
        metavar="LOW:HIGH",
        help="Devices take so many times as long as profiles say, drawn for each variant.",
    ),
]
LatencyNoiseOption = Annotated[
    float,
    typer.Option(
        "--latency-noise", metavar="SIGMA", help="Deviation of the logarithm of a batch's time."
    ),
]
GatewaysOption = Annotated[
    int,
    typer.Option(
        "--gateways",
        metavar="N",
        help="How many choose. Of several, each knows of queues what it sent and was replied.",
    ),
]
TasksStayOption = Annotated[
    bool,
    typer.Option(
        "--tasks-stay",
        help="With several gateways, each task's queries come to one of them; else to any.",
    ),
]
BoundOption = Annotated[
    bool,
    typer.Option(
        "--bound",
        help="Add what no policy can beat, noise left out, and by how much it is missed.",
    ),
]
ApproximateOption = Annotated[
    bool,
    typer.Option(
        "--approximate",
        help="Play a sample of a trace of rates, for weeks and large fleets.",
    ),
]
PlotOption = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Draw it over time, as .html, .png or .svg."),
]


def simulate(
    catalog: CatalogOption,
    devices: DevicesOption,
    trace: TraceOption,
    policy: PolicyOption = OURS,
    objective: ObjectiveOption = Objective.COST,
    eviction: EvictionOption = DEFAULTS.eviction,
    seed: SeedOption = 0,
    tick_s: TickOption = 10.0,
    provision_s: ProvisionOption = None,
    instant: InstantOption = False,
    failures_every_s: FailuresOption = None,
    fixed_fleet: FixedFleetOption = False,
    loads_in_turn: LoadsInTurnOption = True,
    layouts: LayoutsOption = None,
    linger_s: LingerOption = DEFAULTS.linger_s,
    peaks: PeaksOption = None,
    latency_error: LatencyErrorOption = "1:1",
    latency_noise: LatencyNoiseOption = 0.0,
    gateways: GatewaysOption = 1,
    tasks_stay: TasksStayOption = False,
    bound: BoundOption = False,
    approximate: ApproximateOption = False,
    plot: PlotOption = None,
    json: JsonOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Try a policy on a trace: violations, accuracy, cost, loads; nothing has to run.

    The decisions are those that serve in production, run in simulated time.

    \b
    modelless simulate --catalog catalog.csv --devices devices.csv \\
      --trace trace.csv --policy all --plot trace.html
    """
    from controlplane.plots.plot_file import check_target
    from planner.simulation.setting import Setting

    names = list(POLICIES) if policy == ALL else [_among("policy", policy, [*POLICIES, ALL])]
    _among("eviction rule", eviction, list(RULES))
    if provision_s is None:
        provision_s = START_S if layouts else PROVISION_S
    _check_times(tick_s, provision_s, failures_every_s, linger_s)
    error, noise = _factors("--latency-error", latency_error), _noise(latency_noise)
    if instant and (failures_every_s is not None or error != (1.0, 1.0) or noise):
        raise InvalidInput(
            "--instant knows no time: it goes with none of --failures-every-s, --latency-error and "
            "--latency-noise"
        )
    if approximate:
        beyond = bound or peaks is not None
        check_approximation(names, objective, tick_s, instant=instant, beyond=beyond)
    check_gateways(names, gateways, tasks_stay=tasks_stay, others=(instant, approximate))
    if layouts is not None:
        check_layouts(names, others=(instant, fixed_fleet, approximate, bound))
    if plot is not None:
        check_target(plot)
    known, kinds, declared, split = _read(catalog, devices, peaks, layouts)
    setting = Setting(
        catalog=known, kinds=kinds, peaks=declared, objective=objective, eviction=eviction,
        seed=seed, tick_s=tick_s, provision_s=provision_s, instant=instant,
        failures_every_s=failures_every_s, elastic=False if fixed_fleet else None,
        loads_in_turn=loads_in_turn, linger_s=linger_s, split=split, latency_error=error,
        latency_noise=noise, gateways=gateways, tasks_stay=tasks_stay,
    )  # fmt: skip
    if approximate:
        played = _sample(setting, trace, catalog)
    else:
        played = _play(setting, trace, catalog, names, bound=bound)
    data = played.as_json(seed)
    emit(data if policy == ALL else data[0], Output.JSON if json else output, played.show)
    # Last: when the plot cannot be written, the numbers are out.
    if plot is not None:
        _draw(plot, played, f"{trace.name}, objective {objective.value}")
        if output is Output.TABLE and not json:
            typer.echo(f"\nDrawn in {plot}")


def _read(
    catalog: Path, devices: Path, peaks: Path | None, layouts: str | None
) -> "tuple[CatalogSnapshot, tuple[AvailableKind, ...], tuple[Peak, ...], Split | None]":
    """What there is: variants, device kinds, the peaks that were declared, and how a machine may be
    split."""
    from controlplane.files.catalog import catalog_snapshot, read_catalog, read_devices
    from controlplane.files.peaks import read_peaks

    kinds = read_devices(devices)
    split = None if layouts is None else split_of(layouts, kinds, devices)
    offers = read_catalog(catalog, kinds, devices=devices)
    if split is not None:
        kinds = kinds_of(split, kinds)
        offers = tuple(one for one in offers if one.device_kind in split.cores)
    declared = () if peaks is None else read_peaks(peaks, {offer.task for offer in offers})
    return catalog_snapshot(offers, kinds), kinds, declared, split


def _play(
    setting: "Setting", trace: Path, catalog: Path, names: Sequence[str], *, bound: bool
) -> Played:
    """Each policy on the whole trace, and with ``bound`` what none of them can beat."""
    from controlplane.files.demand import read_trace
    from planner.simulate import bound as bound_of
    from planner.simulate import offers_of
    from planner.simulate import simulate as run
    from planner.simulation.impossible import impossible

    queries = read_trace(trace, _tasks(setting), seed=setting.seed, catalog=catalog)
    reports, alone = [], []
    clock = time.perf_counter
    with collected_rarely() as collect:
        for name in names:
            with _progress(name) as progress:
                reports.append(run(setting, queries, name, clock=clock, progress=progress))
            collect()
    known = bound_of(setting, queries, reports) if bound else None
    with collected_rarely() as collect:
        for fixed in () if setting.split is None else each_alone(setting, setting.split):
            alone.append(run(fixed, queries, OURS, clock=clock))
            collect()
    return Played(
        reports,
        [] if known is None else [known.beside(one) for one in reports],
        split=setting.split,
        alone=alone,
        impossible=impossible(setting, offers_of(setting.catalog), queries),
    )


def _sample(setting: "Setting", trace: Path, catalog: Path) -> Played:
    """The one policy that can be, on a sample of a trace of rates."""
    from controlplane.files.demand import read_rates
    from planner.approximate.approximate import approximate

    rates = read_rates(trace, _tasks(setting), catalog=catalog)
    with _progress(OURS) as progress:
        made = approximate(setting, rates, clock=time.perf_counter, progress=progress)
    return Played([made.report], [], sampled(made))


def _tasks(setting: "Setting") -> set[str]:
    return {task.name for task in setting.catalog.tasks}


def _draw(plot: Path, played: Played, title: str) -> None:
    from controlplane.plots.plot_file import write_plot
    from controlplane.plots.simulation import simulation_drawing

    write_plot(plot, simulation_drawing(played.reports, title, played.beside))


def _check_times(
    tick_s: float, provision_s: float, failures_every_s: float | None, linger_s: float
) -> None:
    _time("--tick-s", tick_s, least=0.001)
    _time("--provision-s", provision_s, least=0)
    _time("--linger-s", linger_s, least=0)
    if failures_every_s is not None:
        _time("--failures-every-s", failures_every_s, least=0.001)


def _noise(sigma: float) -> float:
    if not 0 <= sigma <= MOST_NOISE:
        raise InvalidInput(f"--latency-noise {sigma:g} is not from 0 to {MOST_NOISE:g}")
    return sigma


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
        raise InvalidInput(f"{option} {value:g} is not possible; at least {least:,g} s is needed")


@contextmanager
def collected_rarely() -> Iterator[Callable[[], int]]:
    """Keep the garbage collector away from what is there, and call it less often: when it is told
    to, by what this gives.

    In a process that keeps it away from something already, that is left as it is. To ask for that
    takes as long as there is much of it.
    """
    before = gc.get_threshold()
    ours = gc.get_freeze_count() == 0
    if ours:
        gc.collect()
        gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        yield gc.collect
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
