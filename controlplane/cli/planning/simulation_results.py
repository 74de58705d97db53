"""What came of a simulation: as plain JSON values, and as a table for people."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from controlplane.cli.planning.layout_results import as_json_of, show_changes, titled
from controlplane.cli.render import console, fits, ms, percent, seconds, table

if TYPE_CHECKING:
    from planner.approximate.approximate import Approximation
    from planner.bounds.bound import Beside
    from planner.simulation.impossible import Impossible
    from planner.simulation.results import EnergyUse, Report
    from planner.simulation.setting import Split

MATTER = (">VIOLATIONS", ">ACCURACY", ">COST USD", ">LATE", ">REJECTED")
"""What policies are compared by; on a narrow terminal the rest is left out."""


@dataclass(frozen=True, slots=True)
class Played:
    """One report for each policy, and what is said beside them."""

    reports: "Sequence[Report]"
    beside: "Sequence[Beside]"
    """What no policy can beat, for each report; empty where nobody asked."""
    sampled: Mapping[str, Any] = field(default_factory=dict)
    """What an estimate has beside its report; empty where the whole trace was played."""
    split: "Split | None" = None
    """How the machine may be split, where plans split one."""
    alone: "Sequence[Report]" = ()
    """What each of its layouts comes to by itself."""
    impossible: "Impossible | None" = None
    """What no policy could have answered; None where the trace was not looked through."""

    def as_json(self, seed: int) -> list[dict[str, Any]]:
        """The reports as plain JSON values."""
        data = [{**as_json(report, seed), **self.sampled} for report in self.reports]
        for one, missed in zip(data, self.beside, strict=False):
            one.update(asdict(missed))
        if self.split is not None:
            alone = [as_json(one, seed) for one in self.alone]
            data[0] |= as_json_of(self.reports[0], self.split, alone)
        return data

    def show(self) -> None:
        """Print them side by side, and how a machine was split."""
        self._table(
            self.reports if self.split is None else [*self.reports, *titled(self.alone, self.split)]
        )
        known, first = self.impossible, self.reports[0]
        beyond = "" if known is None else beyond_all(known, first.requests)
        hopeless = known is not None and known.total == first.requests
        for said in (beyond, "" if hopeless else refused_early(first)):
            if said:
                print()
                console().print(said, style="dim", soft_wrap=True, markup=False)
        if self.split is not None:
            show_changes(self.reports[0])

    def _table(self, reports: "Sequence[Report]") -> None:
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
            *_bound_rows(self.beside),
        ]
        if self.sampled:
            rows += [
                ("played", [f"{self.sampled['played']:,}"]),
                ("each stands for", [f"{self.sampled['scale']:.1f}"]),
                ("violations +-", [percent(self.sampled["violation_ratio_error"])]),
                ("accuracy +-", [percent(self.sampled["effective_accuracy_error"])]),
            ]
        columns = ["POLICY", *(f">{one.policy}" for one in reports)]
        body = [[name, *values] for name, values in rows]
        if len(reports) > 1 and not fits(columns, body):
            _policies_below_each_other(body, [one.policy for one in reports])
        else:
            table(columns, body, empty="")


def _policies_below_each_other(rows: Sequence[Sequence[str]], policies: Sequence[str]) -> None:
    """The same turned around, for a terminal that many policies beside each other do not fit."""
    names = [f">{row[0].upper()}" for row in rows]
    table(
        ["POLICY", *names],
        [list(cells) for cells in zip(policies, *(row[1:] for row in rows), strict=True)],
        empty="",
        spare=[name for name in reversed(names) if name not in MATTER],
    )


def beyond_all(found: "Impossible", requests: int) -> str:
    """How many queries ask for what no variant can do, and why; empty if none does."""
    reasons = (
        (found.nowhere, "a task of which no device can hold a variant"),
        (found.accuracy, "more accuracy than any has"),
        (found.cost, "a lower cost than any has that is accurate enough"),
        (found.latency, "less time than any takes that is accurate and cheap enough"),
    )
    said = "; ".join(f"{what} ({count:,})" for count, what in reasons if count)
    if not said:
        return ""
    return f"{found.total:,} of the {requests:,} queries ask for what no variant can do: {said}."


def refused_early(report: "Report") -> str:
    """How many queries were refused before any device was there; empty if none was."""
    early = takewhile(lambda one: not one.devices, report.timeline)
    count = sum(one.rejected for one in early)
    if not count:
        return ""
    return (
        f"{count:,} of the {report.rejected:,} that {report.policy} rejected came before its first"
        " device served: the fleet starts empty (--provision-s says how long a device takes, and"
        " with --fixed-fleet all are there)."
    )


def sampled(made: "Approximation") -> dict[str, Any]:
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
