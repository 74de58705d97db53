"""Proteus' resource allocation: which variant each device holds, and what is routed to it.

The mixed integer program of Ahmad et al., ASPLOS'24, section 4: binary x_ij (device i holds variant
j, exactly one), routing shares z_ik, peak rates p_ij; served y_i at most the peak of its device and
at most max(1, beta) times what is routed to it; all served together at least beta times the demand;
the largest mean accuracy. While there is no solution, beta is lowered.

It is written here with whole numbers per device kind instead of a binary per device, as devices of
a kind are alike, and with flows y = z x s instead of shares, which makes it linear. One thing
differs, in its favour: what counts for accuracy is what is served. In the paper it is what is
routed, so that below beta = 1 the surplus would best be routed to the most accurate devices, which
cannot serve it.

Where the paper is silent:

* A family has one SLO in the paper. Here it may have several classes (latency, floor): a device is
  set up for one latency, which gives its batch b*, and serves the classes of its family that have
  this latency or a longer one and whose floor its variant meets.
* A variant of which not even one row runs in half of the SLO has no peak rate in the paper. It runs
  row by row if it alone meets the SLO and nothing else of the family does on any device.
* Among solutions of the same accuracy, the one that changes the fewest devices (as it weighs, less
  than 0.001 of accuracy for all devices together).
* Memory is not modelled: a variant that is larger than the device is left out beforehand.
* beta begins at ``BETA``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor
from typing import NamedTuple

from planner.policies.offers import half_slo_batch
from planner.solver.milp import Program, solve
from planner.solver.problem import AvailableKind
from planner.types import Candidate
from variants.types import DeviceKindName, TaskName, VariantName, WorkerId

BETA = 1.5
"""Where beta begins."""
STEP, COARSE_STEP, COARSE_ABOVE = 0.05, 0.1, 1.5
"""By how much beta is lowered, and by how much above 1.5."""
STAY = 1e-3
"""Weight of the devices that keep their variant, all together, in units of mean accuracy."""
TIME_LIMIT_S = 600.0
"""Of one solver run by the wall clock: a guard, so far from what runs take, some seconds of
processor time, that it does not cut in on a busy machine and change what comes out."""
RELATIVE_GAP = 2e-3
NODES = 50
"""Of the solver's search, at which it ends."""


class Family(NamedTuple):
    """One SLO class of a query type: k in the paper, where a type has one SLO."""

    task: TaskName
    latency_ms: float
    floor: float
    """Least accuracy; minus infinity when none is asked for."""
    qps: float


class Setup(NamedTuple):
    """A device kind with a variant on it, for queries with a latency SLO: j on i in the paper."""

    kind: DeviceKindName
    task: TaskName
    variant: VariantName
    accuracy: float
    latency_ms: float
    """The tightest SLO that it serves."""
    batch: int
    """b*: the largest whose latency is within half of the SLO."""
    peak_qps: int
    """p: floor(b* x 1000 / latency(b*))."""

    def serves(self, family: Family) -> bool:
        return (
            family.task == self.task
            and family.latency_ms >= self.latency_ms
            and family.floor <= self.accuracy
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """How many devices get each setup, and how much of each family goes there."""

    beta: float
    counts: Mapping[Setup, int]
    flows: Mapping[tuple[Setup, int], float]
    """Queries per second at ``max(1, beta)`` times the demand, by setup and index of family."""
    accuracy: float
    """Mean over what is served, weighted by rate."""


def betas() -> tuple[float, ...]:
    """The values that beta takes, one after the other; the last is 0, which is always feasible."""
    found, beta = [], BETA
    while beta > 0:
        found.append(beta)
        beta = round(beta - (COARSE_STEP if beta > COARSE_ABOVE else STEP), 6)
    return (*found, 0.0)


def setups(candidates: Sequence[Candidate], latencies_ms: Sequence[float]) -> tuple[Setup, ...]:
    """What a task's variants could be set up for, without those that another one, as accurate and
    as fast on the same kind, makes useless."""
    found: list[Setup] = []
    peak_qps: dict[tuple[DeviceKindName, VariantName], int] = {}
    for latency_ms in sorted(set(latencies_ms)):
        peaks = [_setup(c, latency_ms, half_slo_batch(c.table, latency_ms)) for c in candidates]
        able = [made for made in peaks if made.peak_qps]
        if not able:
            alone = (c for c in candidates if c.table.ms[1] <= latency_ms)
            able = [made for made in (_setup(c, latency_ms, 1) for c in alone) if made.peak_qps]
        fastest: dict[DeviceKindName, int] = {}
        for made in sorted(able, key=lambda s: (-s.accuracy, -s.peak_qps, s.variant)):
            if made.peak_qps > fastest.get(made.kind, 0):
                fastest[made.kind] = made.peak_qps
                # With the same batch for a tighter SLO, it serves all of these as well.
                if made.peak_qps > peak_qps.get((made.kind, made.variant), 0):
                    peak_qps[made.kind, made.variant] = made.peak_qps
                    found.append(made)
    return tuple(found)


def _setup(candidate: Candidate, latency_ms: float, batch: int) -> Setup:
    return Setup(
        kind=candidate.device_kind,
        task=candidate.task,
        variant=candidate.variant,
        accuracy=candidate.accuracy,
        latency_ms=latency_ms,
        batch=batch,
        peak_qps=floor(batch * 1_000 / max(candidate.table.ms[batch], 1e-6)),
    )


def allocate(
    families: Sequence[Family],
    options: Sequence[Setup],
    kinds: Sequence[AvailableKind],
    held: Mapping[tuple[DeviceKindName, TaskName, VariantName], int],
) -> Allocation:
    """The most accurate allocation at the first beta that has one.

    ``held`` counts the devices that hold a variant now. A demand that is feasible at one beta is so
    at every lower one, so the first feasible of ``betas()`` is found by bisection.
    """
    grid = betas()
    program = _Program(families, options, kinds, held)
    low, high = 0, len(grid) - 1
    best: Allocation | None = None
    while low < high:
        # The first guess is the beginning: when there is room, it is the answer.
        middle = low if best is None and low == 0 and high == len(grid) - 1 else (low + high) // 2
        found = program.solve(grid[middle])
        if found is None:
            low = middle + 1
        else:
            best, high = found, middle
    if best is None or best.beta != grid[low]:
        best = program.solve(grid[low]) or best
    return best or Allocation(beta=0.0, counts={}, flows={}, accuracy=0.0)


class _Program:
    """The program for one demand; made anew for each beta."""

    def __init__(
        self,
        families: Sequence[Family],
        options: Sequence[Setup],
        kinds: Sequence[AvailableKind],
        held: Mapping[tuple[DeviceKindName, TaskName, VariantName], int],
    ) -> None:
        self._families = families
        self._options = options
        self._kinds = kinds
        self._held = held
        self._total_qps = sum(family.qps for family in families)

    def solve(self, beta: float) -> Allocation | None:
        """The most accurate allocation that serves ``beta`` times the demand."""
        scale, total = max(1.0, beta), self._total_qps
        program = Program(maximise=True)
        counts = {option: program.variable(whole=True) for option in self._options}
        flows = {
            (option, index): program.variable(cost=option.accuracy / (scale * max(total, 1e-9)))
            for option in self._options
            for index, family in enumerate(self._families)
            if option.serves(family)
        }
        for option, n in counts.items():
            through = [y for (other, _), y in flows.items() if other is option]
            ones = [1.0] * len(through)
            program.row([n, *through], [-option.peak_qps, *ones], high=0.0)
        for index, family in enumerate(self._families):
            routed = [y for (_, other), y in flows.items() if other == index]
            program.row(routed, [1.0] * len(routed), high=scale * family.qps)
        program.row(list(flows.values()), [1.0] * len(flows), low=beta * total)
        for kind in self._kinds:
            there = [n for option, n in counts.items() if option.kind == kind.name]
            program.row(there, [1.0] * len(there), high=kind.count)
        self._prefer_to_stay(program, counts)
        values = solve(program, time_limit_s=TIME_LIMIT_S, gap=RELATIVE_GAP, nodes=NODES).values
        if values is None:
            return None
        rates = {key: values[y] for key, y in flows.items() if values[y] > 1e-6}
        served = sum(rates.values())
        right = sum(option.accuracy * rate for (option, _), rate in rates.items())
        return Allocation(
            beta=beta,
            counts={option: k for option, n in counts.items() if (k := round(values[n]))},
            flows=rates,
            accuracy=right / served if served else 0.0,
        )

    def _prefer_to_stay(self, program: Program, counts: Mapping[Setup, int]) -> None:
        """Count the devices that keep their variant, with a weight that only breaks ties."""
        devices = sum(kind.count for kind in self._kinds)
        holders: dict[tuple[DeviceKindName, TaskName, VariantName], list[int]] = {}
        for option, n in counts.items():
            holders.setdefault((option.kind, option.task, option.variant), []).append(n)
        for key, ns in holders.items():
            if self._held.get(key, 0):
                stays = program.variable(high=self._held[key], cost=STAY / max(1, devices))
                program.row([stays, *ns], [1.0, *(-1.0 for _ in ns)], high=0.0)


def assign(
    wanted: Mapping[Setup, int],
    devices: Mapping[WorkerId, tuple[DeviceKindName, frozenset[tuple[TaskName, VariantName]]]],
    before: Mapping[WorkerId, Setup],
) -> dict[WorkerId, Setup]:
    """Which device gets which setup: those that have its variant keep it.

    Args:
        wanted: devices by setup.
        devices: by name, the kind and what is loaded.
        before: what each device was set up for until now.

    Returns the setups of all devices that get one, by name.
    """
    left = dict(wanted)
    found: dict[WorkerId, Setup] = {}

    def fits(name: WorkerId, setup: Setup, rank: int) -> bool:
        kind, loaded = devices[name]
        if kind != setup.kind:
            return False
        old = before.get(name)
        if rank == 0:
            return old == setup
        if rank == 1:
            return old is not None and (old.task, old.variant) == (setup.task, setup.variant)
        return rank == 3 or (setup.task, setup.variant) in loaded

    for rank in range(4):
        for name in devices:
            if name in found:
                continue
            for setup, count in left.items():
                if count and fits(name, setup, rank):
                    found[name] = setup
                    left[setup] -= 1
                    break
    return found
