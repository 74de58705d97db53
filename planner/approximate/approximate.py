"""Running one approximate simulation: a setting and a rate trace in, an estimate out."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from planner.approximate.rates import RateTrace
from planner.approximate.sample import WINDOWS, Sample, drawn, sample_of
from planner.approximate.sampled_policy import sampled
from planner.approximate.sampled_tally import Chance, SampledTally
from planner.simulate import least_billed_ms, offers_of
from planner.simulation.engine import Engine
from planner.simulation.fleet import Fleet
from planner.simulation.policy import Brief, Policy
from planner.simulation.results import Report
from planner.simulation.setting import Setting

POLICY = "modelless"
"""The policy that is played: the others count arrivals in ways of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approximation:
    """A report of a whole trace, estimated from a sample of it."""

    report: Report
    chance: Chance
    """Standard errors of the sampling."""
    scale: float
    """Devices of the fleet that each played one stands for."""
    windows: int
    played: int
    """Queries that were played one by one."""


def approximate(
    setting: Setting,
    rates: RateTrace,
    *,
    clock: Callable[[], float],
    progress: Callable[[float], None] | None = None,
    windows: int = WINDOWS,
) -> Approximation:
    """Estimate what ``planner.simulate.simulate`` would report of a rate trace.

    Deterministic, but for what ``clock``, in seconds, measures. At most ``windows`` slices are
    played.

    Raises:
        ValueError: there is no query in the sample, or time is not to count.
    """
    if setting.instant:
        raise ValueError("without time there is nothing to sample")
    if setting.tick_s < 1 or setting.tick_s != int(setting.tick_s):
        raise ValueError("rates are per second: the time between two plans must be whole seconds")
    sample = sample_of(rates, setting.kinds, setting.seed, windows)
    smaller = replace(setting, kinds=sample.kinds)
    trace = drawn(rates, sample, setting.seed)
    if not len(trace):
        raise ValueError("there is no query in the sample")
    fleet = Fleet(offers_of(setting.catalog), sample.kinds)
    brief = Brief(setting=smaller, average=tuple, clock_s=clock)

    def policy(known: Fleet) -> Policy:
        return sampled(brief, known, rates, sample)

    tally = SampledTally(sample, rates.duration_s, _expected(rates, sample))
    engine = Engine(smaller, trace, fleet, policy, clock, tally)
    end_ms = max(engine.run(progress), rates.duration_s * 1_000.0)
    chance = tally.extrapolate()
    report = tally.report(POLICY, engine.devices.billed, end_ms, least_billed_ms(smaller))
    return Approximation(
        report=_whole(report, sample),
        chance=chance,
        scale=sample.scale,
        windows=len(sample.slices),
        played=len(trace),
    )


def _expected(rates: RateTrace, sample: Sample) -> list[float]:
    """Queries of each window."""
    found = []
    for index in range(len(sample.slices)):
        begin_s = index * sample.width_s
        found.append(float(rates.requests[rates.rows(begin_s, begin_s + sample.width_s)].sum()))
    return found


def _whole(report: Report, sample: Sample) -> Report:
    """What devices cost, and how many there are, of the whole fleet."""
    timeline = tuple(
        replace(each, devices=round(each.devices * sample.scale)) for each in report.timeline
    )
    return replace(report, cost_usd=report.cost_usd * sample.scale, timeline=timeline)
