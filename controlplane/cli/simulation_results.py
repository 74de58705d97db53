"""What ``modelless simulate`` shows to people."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from controlplane.cli.render import ms, percent, seconds, table

if TYPE_CHECKING:
    from planner.bounds.bound import Beside
    from planner.simulation.results import EnergyUse, Report


def show(
    reports: "Sequence[Report]", beside: "Sequence[Beside]", sampled: Mapping[str, Any]
) -> None:
    """A table with a column for each report.

    Args:
        beside: what no policy can beat, for each of them or none.
        sampled: what an estimate has beside its only report.
    """
    rows = [
        ("requests", [f"{one.requests:,}" for one in reports]),
        ("in time", [f"{one.in_time:,}" for one in reports]),
        ("late", [f"{one.late:,}" for one in reports]),
        ("rejected", [f"{one.rejected:,}" for one in reports]),
        ("violations", [percent(one.violation_ratio) for one in reports]),
        ("accuracy", [percent(_accuracy(one)) for one in reports]),
        ("cost USD", [_cost(one.cost_usd) for one in reports]),
        *_energy_rows(reports),
        ("busy", [percent(one.busy_ratio) for one in reports]),
        ("loads", [f"{one.loads:,}" for one in reports]),
        ("evictions", [f"{one.evictions:,}" for one in reports]),
        ("loading", [seconds(one.load_s_total) for one in reports]),
        ("decision p50", [f"{one.decision_us_p50:.1f} us" for one in reports]),
        ("decision p99", [f"{one.decision_us_p99:.1f} us" for one in reports]),
        ("plan p50", [f"{ms(one.plan_ms_p50)} ms" for one in reports]),
        ("plan p99", [f"{ms(one.plan_ms_p99)} ms" for one in reports]),
        *_bound_rows(beside),
    ]
    if sampled:
        rows += [
            ("played", [f"{sampled['played']:,}"]),
            ("each stands for", [f"{sampled['scale']:.1f}"]),
            ("violations +-", [percent(sampled["violation_ratio_error"])]),
            ("accuracy +-", [percent(sampled["effective_accuracy_error"])]),
        ]
    table(
        ["POLICY", *(f">{one.policy}" for one in reports)],
        ([name, *values] for name, values in rows),
        empty="",
    )


def _energy_rows(reports: "Sequence[Report]") -> list[tuple[str, list[str]]]:
    """Joules and grams, where anything is known of them."""
    if all(one.energy is None for one in reports):
        return []

    def row(name: str, of: "Callable[[EnergyUse, Report], float | None]") -> tuple[str, list[str]]:
        values = (None if one.energy is None else of(one.energy, one) for one in reports)
        return name, ["-" if value is None else _cost(value) for value in values]

    return [
        row("energy kJ", lambda use, _: _part(use.energy_j, 1e3)),
        row("of it idle kJ", lambda use, _: _part(use.idle_energy_j, 1e3)),
        row("J per query in time", lambda use, one: _part(use.energy_j, one.in_time)),
        row("CO2 g", lambda use, _: use.carbon_g),
        (
            "energy unmeasured",
            [f"{one.energy.energy_unmeasured:,}" if one.energy else "-" for one in reports],
        ),
    ]


def _part(value: float | None, unit: float) -> float | None:
    return None if value is None or not unit else value / unit


def _bound_rows(beside: "Sequence[Beside]") -> list[tuple[str, list[str]]]:
    """What no policy can beat, for as many queries in time, and the regret."""
    if not beside:
        return []
    return [
        ("bound: violations", [percent(one.bound_violation_ratio) for one in beside]),
        ("bound: accuracy", [percent(one.bound_accuracy) for one in beside]),
        ("bound: cost USD", [_cost(one.bound_cost_usd) for one in beside]),
        ("bound: whole devices", [_cost(one.bound_whole_cost_usd) for one in beside]),
        ("regret: violations", [percent(one.regret_violation_ratio) for one in beside]),
        ("regret: accuracy", [percent(one.regret_accuracy) for one in beside]),
        ("regret: cost", [percent(one.regret_cost_ratio) for one in beside]),
        ("regret: whole devices", [percent(one.regret_whole_cost_ratio) for one in beside]),
    ]


def _accuracy(report: "Report") -> float | None:
    """Mean accuracy of the queries in time, in [0, 1]; None when no query was in time."""
    return report.effective_accuracy if report.in_time else None


def _cost(value: float) -> str:
    """Close policies must not look the same: at least four digits."""
    return f"{value:,.2f}" if value >= 10 else f"{value:.4f}"
