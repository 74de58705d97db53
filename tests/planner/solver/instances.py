"""Random planning problems, small enough to be solved by trying everything."""

from dataclasses import replace
from math import inf
from random import Random

from planner.latency_curve import Curve
from planner.solver.problem import AvailableKind, Offer, Pool, Problem
from planner.types import Demand
from variants.types import DeviceKindName, ModelName, TaskName, VariantName

NO_FLOOR = None


def small(seed: int) -> Problem:
    """One to three tasks, at most three devices of one or two kinds.

    Memory is short in half of them and blank in some; about a third cannot serve everything.
    """
    draw = Random(seed)
    kinds = _kinds(draw)
    offers: list[Offer] = []
    demand: list[Demand] = []
    for number in range(draw.choice([1, 2, 2, 3])):
        task = TaskName(f"task-{number}")
        made = _offers(draw, task, kinds)
        offers += made
        floors = [NO_FLOOR, *sorted({offer.accuracy for offer in made})]
        for latency_ms in draw.sample([20.0, 30.0, 50.0, 100.0, 200.0], draw.choice([1, 1, 2])):
            demand.append(
                Demand(
                    task=task,
                    latency_ms=latency_ms,
                    accuracy=draw.choice(floors),
                    qps=draw.choice([1.0, 10.0, 40.0, 100.0]) * draw.uniform(0.5, 1.5),
                )
            )
    return Problem(
        offers=tuple(offers),
        kinds=kinds,
        demand=tuple(demand),
        pools=_pools(draw, kinds),
    )


def interfering(seed: int) -> Problem:
    """A small problem on whose devices variants slow one another down, by 5 to 150 %."""
    draw = Random(seed)
    problem = small(seed)
    kinds = tuple(
        replace(kind, interference=draw.choice([0.05, 0.2, 0.5, 1.5])) for kind in problem.kinds
    )
    return replace(problem, kinds=kinds)


def limited(seed: int) -> Problem:
    """A small problem with classes that fill only small batches or are pinned, and canaries."""
    draw = Random(seed)
    problem = interfering(seed) if draw.random() < 0.3 else small(seed)
    tasks = {offer.task: offer.variant for offer in problem.offers}
    return replace(
        problem,
        most=tuple(draw.choice([0, 1, 2, 3, 4]) for _ in problem.demand),
        demand=tuple(
            replace(each, variant=tasks[each.task], accuracy=None)
            if each.task in tasks and draw.random() < 0.3
            else each
            for each in problem.demand
        ),
        offers=tuple(
            replace(offer, canary=offer.variant == tasks[offer.task] and seed % 3 == 0)
            for offer in problem.offers
        ),
    )


def _kinds(draw: Random) -> tuple[AvailableKind, ...]:
    counts = draw.choice([(1,), (2,), (3,), (1, 1), (1, 2), (2, 1)])
    memory = draw.choice([inf, inf, 1_000.0, 1_500.0])
    return tuple(
        AvailableKind(
            name=DeviceKindName(f"kind-{number}"),
            count=count,
            memory_mib=memory * draw.choice([1, 1, 2]),
            usd_per_hour=draw.choice([0.1, 0.3, 0.5, 1.0, 1.2, 2.5]),
        )
        for number, count in enumerate(counts)
    )


def _offers(draw: Random, task: TaskName, kinds: tuple[AvailableKind, ...]) -> list[Offer]:
    speeds = [draw.choice([0.3, 0.6, 1.0, 1.5]) for _ in kinds]
    made = []
    for number in range(draw.choice([1, 2, 2])):
        first_ms, each_ms = draw.uniform(1, 12), draw.uniform(0.5, 6)
        memory_mib = draw.choice([0.0, draw.uniform(200, 1_100)])
        accuracy = round(draw.uniform(0.6, 0.95), 3)
        sizes = draw.choice([(1, 4), (1, 2, 4), (2,), (1, 3)])
        for kind, speed in zip(kinds, speeds, strict=True):
            if draw.random() < 0.1:
                continue
            made.append(
                Offer(
                    task=task,
                    model=ModelName("model"),
                    variant=VariantName(f"variant-{number}"),
                    accuracy=accuracy,
                    device_kind=kind.name,
                    curve=Curve([(b, speed * (first_ms + each_ms * b)) for b in sizes]),
                    memory_mib=memory_mib,
                )
            )
    return made


def _pools(draw: Random, kinds: tuple[AvailableKind, ...]) -> tuple[Pool, ...]:
    """In a few, both kinds are cut from one machine."""
    if len(kinds) < 2 or draw.random() > 0.2:
        return ()
    uses = {kinds[0].name: 2.0, kinds[1].name: 4.0}
    return (Pool(name="machine", capacity=draw.choice([4.0, 6.0, 8.0]), uses=uses),)
