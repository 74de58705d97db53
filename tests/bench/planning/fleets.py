"""Planning problems to measure on: random fleets of any size, and the timm catalogue.

Demand is scaled until best fit opens the wanted part of all devices, so that "a third of the fleet
is needed" means just that.
"""

import csv
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from random import Random

from planner.latency_curve import Curve
from planner.solver.greedy import plan
from planner.solver.options import Options
from planner.solver.partial_solution import PartialSolution
from planner.solver.problem import AvailableKind, Offer, Problem
from planner.types import Demand, Objective
from variants.types import DeviceKindName, ModelName, TaskName, VariantName

BATCHES = (1, 2, 4, 8, 16, 32)
SERIES_MS = (20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What a random problem is like."""

    tasks: int = 100
    variants: int = 1_000
    devices: int = 1_000
    kinds: int = 3
    classes: int = 1
    """Per task."""
    needed: float = 0.4
    """Part of all devices that best fit opens for the cheapest plan; above 1: too many."""
    memory_mib: Sequence[float] = (inf, inf, inf)
    """Per kind. Variants take 100 to 2,000 MiB."""
    slos: str = "series"
    """``series`` (1-2-5 from 20 ms), ``tight`` (12 to 60 ms) or ``any`` (30 to 500 ms)."""
    spread: float = 2.0
    """Orders of magnitude between the smallest and the largest rate."""
    interference: float = 0.0
    """By what part sharing a device prolongs every batch."""
    whales: int = 0
    """Classes that ask for a hundred times as much as the others."""


def fleet(seed: int, shape: Fleet) -> Problem:
    draw = Random(seed)
    speeds, prices = (1.0, 0.25, 0.06), (0.2, 0.9, 3.5)
    each, more = divmod(shape.devices, shape.kinds)
    kinds = tuple(
        AvailableKind(
            name=DeviceKindName(f"kind-{n}"),
            count=each + (n < more),
            memory_mib=shape.memory_mib[n % 3],
            usd_per_hour=prices[n % 3] * (1 + n // 3),
            interference=shape.interference,
        )
        for n in range(shape.kinds)
    )
    offers: list[Offer] = []
    demand: list[Demand] = []
    for number in range(shape.tasks):
        task = TaskName(f"task-{number}")
        made = _variants(draw, task, shape.variants // shape.tasks, kinds, speeds)
        offers += made
        accuracies = sorted({offer.accuracy for offer in made})
        for _ in range(shape.classes):
            demand.append(
                Demand(
                    task=task,
                    latency_ms=_slo(draw, shape.slos),
                    accuracy=draw.choice([None, *accuracies[: max(1, len(accuracies) * 9 // 10)]]),
                    qps=10 ** draw.uniform(0, shape.spread) * (100 if number < shape.whales else 1),
                )
            )
    problem = Problem(offers=tuple(offers), kinds=kinds, demand=tuple(demand))
    return scaled(problem, shape.needed)


def _slo(draw: Random, slos: str) -> float:
    if slos == "series":
        return draw.choice(SERIES_MS)
    return draw.uniform(12, 60) if slos == "tight" else draw.uniform(30, 500)


def _variants(
    draw: Random,
    task: TaskName,
    count: int,
    kinds: Sequence[AvailableKind],
    speeds: Sequence[float],
) -> list[Offer]:
    """The larger, the slower, the more accurate, roughly."""
    made = []
    for number in range(count):
        size = (number + draw.random()) / count
        row_ms = 2 * 10 ** (1.3 * size) * draw.uniform(0.7, 1.4)
        accuracy = round(0.6 + 0.35 * size**0.5 * draw.uniform(0.95, 1.0), 4)
        memory_mib = 100 + 1_500 * size * draw.uniform(0.5, 1.2)
        for n, kind in enumerate(kinds):
            fixed, speed = draw.uniform(0.2, 0.8), speeds[n % 3] * draw.uniform(0.8, 1.25)
            points = [(b, speed * row_ms * (fixed + (1 - fixed) * b)) for b in BATCHES]
            made.append(
                Offer(
                    task=task,
                    model=ModelName(f"model-{number}"),
                    variant=VariantName(f"variant-{number}"),
                    accuracy=accuracy,
                    device_kind=kind.name,
                    curve=Curve(points),
                    memory_mib=memory_mib,
                )
            )
    return made


def scaled(problem: Problem, needed: float) -> Problem:
    """With demand such that the cheapest plan needs this part of all devices, by best fit."""
    fleet_size = sum(kind.count for kind in problem.kinds)
    roomy = replace(
        problem,
        kinds=tuple(replace(kind, count=10 * fleet_size) for kind in problem.kinds),
    )
    for _ in range(3):
        options = Options(roomy)
        opened = sum(device.count for device in plan(options, Objective.COST, quick=True).devices)
        roomy = _times(roomy, needed * fleet_size / opened)
    for _ in range(4):
        # Where one kind is short, the others take over, and more or fewer are needed.
        found = replace(problem, demand=roomy.demand)
        partial: PartialSolution = plan(Options(found), Objective.COST, quick=True)
        opened = sum(device.count for device in partial.devices)
        if partial.complete or opened < 0.95 * fleet_size or needed >= 1:
            break
        roomy = _times(roomy, 0.8)
    return replace(problem, demand=roomy.demand)


def _times(problem: Problem, factor: float) -> Problem:
    return replace(problem, demand=tuple(replace(d, qps=d.qps * factor) for d in problem.demand))


# -- a real catalogue ---------------------------------------------------------------------------

PRICES = {
    "rtx-3090": 0.45,
    "rtx-4090": 0.70,
    "rtx-5090": 1.00,
    "rtx-pro6000": 1.80,
    "i9-10940x": 0.35,
    "i7-12700h": 0.20,
}
"""USD per hour."""


def timm(file: Path, seed: int, *, tasks: int = 100, devices: int = 1_000, needed: float = 0.4,
         spread: float = 2.0) -> Problem:  # fmt: skip
    """ImageNet models as measured by timm, dealt out to tasks in the order of the file.

    A variant is a model at an image size; whole-batch latency is linear through a tenth of the
    measured one at batch 0; memory is four bytes per parameter, two at mixed precision.
    """
    draw = Random(seed)
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    dealt: dict[str, int] = {}
    offers = [_measured(row, dealt, tasks) for row in rows]
    names = sorted({offer.device_kind for offer in offers})
    each, more = divmod(devices, len(names))
    kinds = tuple(
        AvailableKind(
            name=name,
            count=each + (n < more),
            memory_mib=24_000.0 if name.startswith("rtx") else 64_000.0,
            usd_per_hour=next(usd for start, usd in PRICES.items() if name.startswith(start)),
        )
        for n, name in enumerate(names)
    )
    accuracies: dict[TaskName, set[float]] = defaultdict(set)
    for offer in offers:
        accuracies[offer.task].add(offer.accuracy)
    demand = []
    for task, found in sorted(accuracies.items()):
        floors = sorted(found)
        demand.append(
            Demand(
                task=task,
                latency_ms=draw.choice([100.0, 200.0, 500.0, 1_000.0, 2_000.0]),
                accuracy=floors[int(len(floors) * draw.choice([0.0, 0.3, 0.6, 0.8]))],
                qps=10 ** draw.uniform(0, spread),
            )
        )
    problem = Problem(offers=tuple(offers), kinds=kinds, demand=tuple(demand))
    return scaled(problem, needed)


def _measured(row: dict[str, str], dealt: dict[str, int], tasks: int) -> Offer:
    variant = f"{row['model']}@{row['img_size']}"
    task = TaskName(f"task-{dealt.setdefault(variant, len(dealt)) % tasks:03}")
    batch = int(row["batch_size"])
    measured_ms = 1_000 * batch / float(row["samples_per_s"])
    sizes = sorted({*(2**n for n in range(11) if 2**n < batch), batch})
    bytes_each = 2 if row["device_kind"].endswith("amp") else 4
    return Offer(
        task=task,
        model=ModelName(row["model"]),
        variant=VariantName(variant),
        accuracy=float(row["top1"]) / 100,
        device_kind=DeviceKindName(row["device_kind"]),
        curve=Curve([(b, measured_ms * (0.1 + 0.9 * b / batch)) for b in sizes]),
        memory_mib=float(row["params_million"]) * 1e6 * bytes_each / 2**20,
    )
