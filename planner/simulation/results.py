"""What a simulation found: totals, and how they came about over time."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A stretch of simulated time, as long as all others of its timeline."""

    start_s: float
    arrived: int
    in_time: int
    """Of the queries that arrived in it."""
    late: int
    rejected: int
    accuracy: float
    """Mean of those in time; 0 when there is none."""
    devices: int
    """Usable at its end."""
    capacity_qps: float
    """What the ready variants could serve at the end of it, each device with its fastest one."""
    usd_per_hour: float
    """Of the devices billed at its end."""
    busy_ratio: float
    loads: int
    evictions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyUse:
    """What all billed devices took, from their order to their release."""

    energy_j: float | None
    """None where a part of it is not known: a batch of a variant without measured energy was run,
    or a device without a known idle draw was billed."""
    idle_energy_j: float | None
    """The part of it that was drawn while nothing ran."""
    carbon_g: float | None
    """Grams of CO2, by the hour; None where that is not known of every billed device."""
    energy_unmeasured: int
    """Queries answered, in time or late, by variants without measured energy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutChange:
    """A machine was split anew."""

    at_s: float
    """When that was planned."""
    layout: str
    """Into what."""
    why: str
    """The plan's own sentence."""
    done_s: float | None = None
    """When only its workers were left; None where that did not come about."""
    given_up: str = ""
    """Why it was, if it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcome of one simulation. ``requests = in_time + late + rejected``."""

    policy: str
    requests: int
    in_time: int
    late: int
    """Accepted, and finished after the deadline or never."""
    rejected: int
    """Not accepted, those whose floor or cost ceiling was not met included."""
    violation_ratio: float
    """(late + rejected) / requests; 0 without requests."""
    effective_accuracy: float
    """Mean accuracy of those in time."""
    cost_usd: float
    busy_ratio: float
    """Execution time / billed time."""
    loads: int
    evictions: int
    """Unloads to make room, or because the plan had no place for it any more."""
    load_s_total: float
    decision_us_p50: float
    decision_us_p99: float
    """Of choosing, routing and admission of one query, on the injected clock."""
    plan_ms_p50: float
    plan_ms_p99: float
    timeline: Sequence[Interval] = field(default=())
    energy: EnergyUse | None = None
    """None where neither joules nor idle draw of anything are known."""
    layout_changes: Sequence[LayoutChange] = field(default=())
