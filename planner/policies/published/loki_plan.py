"""Loki's resource allocation: hardware scaling, then accuracy scaling.

The mixed integer program of Ahmad et al., HPDC'24, section 4, for pipelines of one task each, as
all tasks are here. First with the most accurate variant of each task alone, the fewest servers that
serve the demand (*hardware scaling*). If the cluster is too small for that, all variants, and the
largest mean accuracy with which it serves the demand (*accuracy scaling*).

Variants and batches are the setups of ``proteus_plan``, by the same authors: a batch takes at most
half of the SLO, the rest is for waiting. Whole numbers are per device kind, as devices of a kind
are alike. Where the paper is silent: servers count by their price, so that cheaper kinds come first
where several do; when not even accuracy scaling serves the demand, as much of it is served as
possible; of solutions that are as good, the one that changes fewer devices.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from planner.policies.published.proteus_plan import (
    NODES,
    RELATIVE_GAP,
    STAY,
    TIME_LIMIT_S,
    Family,
    Setup,
)
from planner.solver.milp import Program, solve
from planner.solver.problem import AvailableKind
from variants.types import DeviceKindName, TaskName, VariantName

Held = Mapping[tuple[DeviceKindName, TaskName, VariantName], int]
"""Devices that hold a variant now."""

SERVED = 1.0 - 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class LokiPlan:
    """How many devices get each setup."""

    counts: Mapping[Setup, int]
    served_qps: float
    by_hardware: bool
    """Whether the most accurate variants are enough."""


def allocate(
    families: Sequence[Family],
    options: Sequence[Setup],
    kinds: Sequence[AvailableKind],
    held: Held,
) -> LokiPlan:
    """The cheapest plan with the most accurate variants, or the most accurate with all."""
    best = most_accurate(families, options)
    return (
        _Program(families, best, kinds, held).by_hardware()
        or _Program(families, options, kinds, held).by_accuracy()
    )


def most_accurate(families: Sequence[Family], options: Iterable[Setup]) -> list[Setup]:
    """The setups of the most accurate variant that serves each family."""
    options = tuple(options)
    found: dict[Setup, None] = {}
    for family in families:
        able = [option for option in options if option.serves(family)]
        top = max((option.accuracy for option in able), default=0.0)
        found |= {option: None for option in able if option.accuracy == top}
    return list(found)


class _Program:
    """Devices of each setup, and flows of families to them."""

    def __init__(
        self,
        families: Sequence[Family],
        options: Sequence[Setup],
        kinds: Sequence[AvailableKind],
        held: Held,
    ) -> None:
        self._families = families
        self._options = options
        self._kinds = kinds
        self._held = held

    def by_hardware(self) -> LokiPlan | None:
        """The least price of servers with which all demand is served; None when none are enough."""
        usd = {kind.name: kind.usd_per_hour for kind in self._kinds}
        total = sum(family.qps for family in self._families)
        spent = max(sum(k.count * k.usd_per_hour for k in self._kinds), 1e-9)
        weight = {option: (usd[option.kind] or 1e-3) / spent for option in self._options}
        return self._solve(
            serve=total, maximise=False, per_device=weight, per_query=lambda _: 0.0, by=True
        )

    def by_accuracy(self) -> LokiPlan:
        """The largest mean accuracy with all demand served, or with the most of it."""
        total = max(sum(family.qps for family in self._families), 1e-9)

        def accuracy(option: Setup) -> float:
            return option.accuracy / total

        none: dict[Setup, float] = {}
        found = self._solve(
            serve=total, maximise=True, per_device=none, per_query=accuracy, by=False
        )
        if found is not None:
            return found
        most = self._solve(
            serve=0.0, maximise=True, per_device=none, per_query=lambda _: 1 / total, by=False
        )
        served = 0.0 if most is None else most.served_qps * (1 - RELATIVE_GAP)
        found = self._solve(
            serve=served, maximise=True, per_device=none, per_query=accuracy, by=False
        )
        return found or most or LokiPlan(counts={}, served_qps=0.0, by_hardware=False)

    def _solve(
        self,
        *,
        serve: float,
        maximise: bool,
        per_device: Mapping[Setup, float],
        per_query: Callable[[Setup], float],
        by: bool,
    ) -> LokiPlan | None:
        program = Program(maximise=maximise)
        counts = {
            option: program.variable(whole=True, cost=per_device.get(option, 0.0))
            for option in self._options
        }
        flows = {
            (option, index): program.variable(cost=per_query(option))
            for option in self._options
            for index, family in enumerate(self._families)
            if option.serves(family)
        }
        for option, n in counts.items():
            through = [y for (other, _), y in flows.items() if other is option]
            program.row([n, *through], [-option.peak_qps, *[1.0] * len(through)], high=0.0)
        for index, family in enumerate(self._families):
            routed = [y for (_, other), y in flows.items() if other == index]
            program.row(routed, [1.0] * len(routed), high=family.qps)
        program.row(list(flows.values()), [1.0] * len(flows), low=serve * SERVED)
        for kind in self._kinds:
            there = [n for option, n in counts.items() if option.kind == kind.name]
            program.row(there, [1.0] * len(there), high=kind.count)
        self._prefer_to_stay(program, counts, sign=1.0 if maximise else -1.0)
        values = solve(program, time_limit_s=TIME_LIMIT_S, gap=RELATIVE_GAP, nodes=NODES).values
        if values is None:
            return None
        return LokiPlan(
            counts={option: k for option, n in counts.items() if (k := round(values[n]))},
            served_qps=sum(values[y] for y in flows.values()),
            by_hardware=by,
        )

    def _prefer_to_stay(
        self, program: Program, counts: Mapping[Setup, int], *, sign: float
    ) -> None:
        """Count the devices that keep their variant, with a weight that only breaks ties."""
        devices = sum(kind.count for kind in self._kinds)
        holders: dict[tuple[DeviceKindName, TaskName, VariantName], list[int]] = {}
        for option, n in counts.items():
            holders.setdefault((option.kind, option.task, option.variant), []).append(n)
        for key, ns in holders.items():
            if self._held.get(key, 0):
                stays = program.variable(high=self._held[key], cost=sign * STAY / max(1, devices))
                program.row([stays, *ns], [1.0, *(-1.0 for _ in ns)], high=0.0)
