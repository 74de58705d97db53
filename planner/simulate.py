"""Running one simulation: a setting, a trace and the name of a policy in, a report out.

``bound`` says what no policy can beat on the same trace.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from planner.forecasting.demand import slo_class
from planner.policies.registry import make
from planner.selection.snapshot import build_snapshot
from planner.simulation.engine import Engine
from planner.simulation.fleet import LEAST_BILLED_MS, Fleet
from planner.simulation.played_latencies import true_catalog
from planner.simulation.policy import Brief, Splitting
from planner.simulation.results import Report
from planner.simulation.setting import Setting
from planner.simulation.trace import Trace
from planner.types import Candidate, Demand
from variants.types import CatalogSnapshot, DeviceKindName, TaskName, VariantKey

if TYPE_CHECKING:
    from planner.bounds.bound import Bound

Clock = Callable[[], float]
SEVERAL_GATEWAYS = "modelless"
"""The policy that may be played with more than one."""


def simulate(
    setting: Setting,
    trace: Trace,
    policy: str,
    *,
    clock: Clock,
    progress: Callable[[float], None] | None = None,
) -> Report:
    """Simulate a trace under a policy. Deterministic, but for what ``clock`` measures.

    Args:
        policy: a name in ``planner.policies.registry.POLICIES``.
        clock: seconds, monotonic; measures decisions and limits solvers.
        progress: called now and then with the part of the trace that is done, in [0, 1].

    Raises:
        ValueError: there is no such policy, or it does not know several gateways.
    """
    factory = make(policy)
    if setting.gateways != 1 and policy != SEVERAL_GATEWAYS:
        raise ValueError(f"the policy {policy} knows one gateway only")
    brief = Brief(
        setting=setting,
        average=lambda: mean_demand(trace, accuracies(setting.catalog)),
        clock_s=clock,
    )
    fleet = Fleet(offers_of(setting.catalog), setting.kinds)
    engine = Engine(setting, trace, fleet, lambda known: factory(brief, known), clock)
    end_ms = engine.run(progress)
    billed, least_ms = engine.devices.billed, least_billed_ms(setting)
    report = engine.tally.report(policy, billed, end_ms, least_ms)
    if isinstance(engine.policy, Splitting):
        report = replace(report, layout_changes=tuple(engine.policy.layout_changes))
    if engine.energy is None or setting.instant:
        return report
    return replace(report, energy=engine.energy.use(billed, end_ms, least_ms))


def bound(
    setting: Setting, trace: Trace, reports: Iterable[Report] = (), *, beginning_s: float = 0.0
) -> "Bound":
    """What no policy can beat on a trace; tight for as many queries in time as in these reports.

    What is billed in the first ``beginning_s`` is told apart where that is more than 0.

    Devices take what they truly take, where that is not what profiles say; a noise is left out. A
    variant costs the less of both, because policies go by either where a query has a ceiling.
    """
    from planner.bounds.bound import bound_of  # its linear programs take long to import

    told, offers = offers_of(setting.catalog), offers_of(true_catalog(setting))
    for kind, true in offers.items():
        for key, one in true.items():
            least_usd = min(one.price_usd_per_1k, told[kind][key].price_usd_per_1k)
            true[key] = replace(one, price_usd_per_1k=least_usd)
    levels = [r.in_time for r in reports]
    return bound_of(setting, trace, offers, levels, beginning_s=beginning_s)


def least_billed_ms(setting: Setting) -> float:
    """Of a device that is ordered and released; a fleet that is there throughout costs its time,
    and so do the workers of a machine that is split anew."""
    return LEAST_BILLED_MS if setting.fleet_is_elastic and setting.split is None else 0.0


def offers_of(catalog: CatalogSnapshot) -> dict[DeviceKindName, dict[VariantKey, Candidate]]:
    """What each device kind can hold."""
    offers: dict[DeviceKindName, dict[VariantKey, Candidate]] = {
        kind.name: {} for kind in catalog.device_kinds
    }
    for view in build_snapshot(catalog, (), transport_ms=0.0).tasks.values():
        for candidate in view.by_cost:
            offers[candidate.device_kind][candidate.task, candidate.variant] = candidate
    return offers


def accuracies(catalog: CatalogSnapshot) -> Mapping[TaskName, tuple[float, ...]]:
    """The accuracies of each task's variants, ascending, each once."""
    found: dict[TaskName, set[float]] = {}
    for variant in catalog.variants:
        found.setdefault(variant.task, set()).add(variant.accuracy)
    return {task: tuple(sorted(values)) for task, values in found.items()}


def mean_demand(trace: Trace, steps: Mapping[TaskName, tuple[float, ...]]) -> tuple[Demand, ...]:
    """The mean rate of each SLO class over the whole trace, its latency the tightest that was asked
    for in the class."""
    tightest_ms: dict[tuple[TaskName, float, float | None], float] = {}
    counts: dict[tuple[TaskName, float, float | None], int] = {}
    asked = Counter(zip(trace.task, trace.latency_ms, trace.min_accuracy, strict=True))
    for (index, latency_ms, floor), count in asked.items():
        task = trace.tasks[index]
        slo = slo_class(latency_ms, None if floor == -inf else floor, steps.get(task, ()))
        counts[(task, *slo)] = counts.get((task, *slo), 0) + count
        tightest_ms[(task, *slo)] = min(tightest_ms.get((task, *slo), inf), latency_ms)
    last_s = max(trace.arrival_s[-1], 1.0) if len(trace) else 1.0
    return tuple(
        Demand(task=key[0], latency_ms=tightest_ms[key], accuracy=key[2], qps=count / last_s)
        for key, count in sorted(
            counts.items(), key=lambda entry: (entry[0][0], entry[0][1], entry[0][2] or -1.0)
        )
    )
