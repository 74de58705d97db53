"""What can be compared on, by name: a catalog, a workload on it and a seed.

A case is a few words, so that it can be handed to another process; what it stands for is made
there, the same every time.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tests.bench.planning.catalogs import Ground, synthetic, timm
from tests.bench.planning.energies import with_energy
from tests.bench.simulation.adverse.drawn import adverse_workload, names
from tests.bench.simulation.mixed_speed import drawn_workload, swings
from tests.bench.simulation.workloads import Drawn, Workload, draw, workloads

CATALOGS = ("synthetic", "timm", "both", "mixed-speed", "draws", "adverse")
"""``both`` are the first two; ``draws`` are random workloads of the mixed-speed kind, ``adverse``
those that look for a weakness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A workload on a catalog, with a seed."""

    catalog: str
    workload: str
    seed: int
    quick: bool = False
    seconds: int | None = None
    """Of workloads that are ten minutes long otherwise, and of those that look for a weakness."""
    energy: bool = False
    """Whether its catalog says what devices and batches take (``tests.bench.planning.energies``).
    """
    tick_s: float = 10.0
    """Between two plans; the product makes one each second."""

    def title(self) -> str:
        """A heading, and how large it is."""
        ground, workload, drawn = made(self)
        devices = ", ".join(f"{k.count} {k.name}" for k in ground.kinds)
        total = len(drawn.trace)
        return (
            f"## {self.workload}, {self.catalog} catalog, seed {self.seed}: {workload.about}\n\n"
            f"{total:,} queries in {workload.duration_s:,} s on {devices}: "
            f"{total / workload.duration_s:,.0f}/s, at the peak {drawn.peak_qps:,.0f}/s of "
            f"{drawn.capacity_qps:,.0f}/s that the cheapest variants could serve"
        )


def cases(
    catalog: str,
    seeds: Iterable[int],
    only: str | None,
    *,
    quick: bool,
    count: int,
    energy: bool = False,
    seconds: int | None = None,
    tick_s: float = 10.0,
) -> list[Case]:
    """The cases of a catalog, seed by seed.

    Args:
        catalog: one of ``CATALOGS``.
        seeds: of catalogs that are drawn, and of queries.
        only: names of workloads by commas; None for all.
        quick: shorter workloads.
        count: how many of the random ones, of ``adverse`` for each kind.
        energy: with what devices and batches take.
        seconds: of those that are ten minutes long otherwise, and of ``adverse``.
        tick_s: between two plans.

    Raises:
        LookupError: the catalog needs data that is not there.
    """
    wanted = None if only is None else only.split(",")
    found = []
    for each in ("synthetic", "timm") if catalog == "both" else (catalog,):
        for seed in seeds:
            found += [
                Case(
                    catalog=each,
                    workload=name,
                    seed=seed,
                    quick=quick,
                    energy=energy,
                    seconds=seconds,
                    tick_s=tick_s,
                )
                for name in _names(each, quick, count)
                if wanted is None or name in wanted
            ]
    return found


@lru_cache(maxsize=2)
def made(case: Case) -> tuple[Ground, Workload, Drawn]:
    """What a case stands for."""
    ground, workload = _pair(case)
    drawn = draw(workload, ground, case.seed)
    return with_energy(ground) if case.energy else ground, workload, drawn


def _names(catalog: str, quick: bool, count: int) -> Sequence[str]:
    if catalog == "draws":
        return [f"draw-{number:02}" for number in range(count)]
    if catalog == "adverse":
        return names(count)
    if catalog == "mixed-speed":
        return [workload.name for _, workload in swings(0, quick=quick)]
    return [w.name for w in workloads(_ground(catalog), _data(), quick=quick)]


def _pair(case: Case) -> tuple[Ground, Workload]:
    if case.catalog == "draws":
        return drawn_workload(int(case.workload.removeprefix("draw-")), case.seed)
    if case.catalog == "adverse":
        return adverse_workload(case.workload, case.seed, case.seconds)
    if case.catalog == "mixed-speed":
        pairs = swings(case.seed, quick=case.quick)
    else:
        ground = _ground(case.catalog)
        found = workloads(ground, _data(), quick=case.quick, seconds=case.seconds)
        pairs = [(ground, w) for w in found]
    return next(pair for pair in pairs if pair[1].name == case.workload)


def _ground(catalog: str) -> Ground:
    if catalog == "synthetic":
        return synthetic()
    data = _data()
    if data is None:
        raise LookupError("the timm catalog needs MODELLESS_BENCH_DATA, a directory")
    return timm(data)


def _data() -> Path | None:
    named = os.environ.get("MODELLESS_BENCH_DATA")
    return None if named is None else Path(named)
