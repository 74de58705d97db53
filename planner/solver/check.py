"""Whether a solution keeps what a problem demands, checked from the definitions alone.

Shares no code with the planners, so that an error of theirs cannot hide itself. Every comparison
asks whether a limit is kept, not whether it is broken: NaN keeps none.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import fields
from math import fsum, isnan

from planner.solver.problem import Assignment, Power, Problem, Solution
from variants.figures import accuracies, apart, figure, ms

TOLERANCE = 1e-9
"""Relative, for sums of rates, times and memory."""


def violations(problem: Problem, solution: Solution) -> tuple[str, ...]:
    """Every broken constraint and every wrong total, one sentence each; empty when all holds."""
    found = [*_references(problem, solution)]
    if found:
        return tuple(found)
    return (
        *_devices(problem, solution),
        *_parts(problem, solution),
        *_sharing(problem, solution),
        *_totals(problem, solution),
    )


def _above(value: float, limit: float) -> bool:
    return not value <= limit + TOLERANCE * max(1.0, abs(limit))


def _references(problem: Problem, solution: Solution) -> Iterator[str]:
    known = {kind.name for kind in problem.kinds}
    yield from (f"unknown device kind {name}" for name in solution.devices if name not in known)
    for part in solution.assignments:
        if not (
            0 <= part.device < len(solution.devices)
            and 0 <= part.demand < len(problem.demand)
            and 0 <= part.offer < len(problem.offers)
        ):
            yield f"an assignment refers to nothing: {part}"
        elif not 1 <= part.batch_size <= problem.offers[part.offer].curve.max_batch:
            yield f"a batch of {part.batch_size} is forbidden to offer {part.offer}"


def _devices(problem: Problem, solution: Solution) -> Iterator[str]:
    opened = Counter(solution.devices)
    for kind in problem.kinds:
        if not opened[kind.name] <= kind.count:
            yield f"{opened[kind.name]} devices of kind {kind.name}, but there are {kind.count}"
    for pool in problem.pools:
        used = fsum(uses * opened[name] for name, uses in pool.uses.items())
        if _above(used, pool.capacity):
            has, takes = apart(pool.capacity, used, 3)
            yield f"pool {pool.name} holds {has}, {takes} are used"


def _parts(problem: Problem, solution: Solution) -> Iterator[str]:
    slower = _slower(problem, solution)
    for part in solution.assignments:
        offer, demand = problem.offers[part.offer], problem.demand[part.demand]
        subject = f"{demand.task} on device {part.device} by {offer.variant}"
        if offer.task != demand.task:
            yield f"{subject}: the variant is of task {offer.task}"
        if not offer.answers(demand):
            yield f"{subject}: the class is pinned to {demand.variant}, or the variant is a canary"
        if offer.device_kind != solution.devices[part.device]:
            yield f"{subject}: profiled on {offer.device_kind}, placed on another kind"
        if demand.accuracy is not None and not offer.accuracy >= demand.accuracy:
            ours, floor = accuracies(offer.accuracy, demand.accuracy)
            yield f"{subject}: accuracy {ours} is below the floor {floor}"
        if problem.most and not part.batch_size <= max(1, problem.most[part.demand]):
            most = problem.most[part.demand]
            yield f"{subject}: its queries fill batches of {most}, not of {part.batch_size}"
        if not part.qps > 0:
            yield f"{subject}: serves {figure(part.qps)} queries per second"
        share = _time(problem, part) * slower[part.device]
        if not abs(share - part.share) <= TOLERANCE * max(1.0, share):
            says, takes = apart(part.share, share, 3)
            yield f"{subject}: says a share of {says}, takes {takes}"
    served: dict[int, list[float]] = defaultdict(list)
    for part in solution.assignments:
        served[part.demand].append(part.qps)
    for index, rates in served.items():
        if not fsum(rates) <= problem.demand[index].qps * (1 + TOLERANCE):
            asks, gets = apart(problem.demand[index].qps, fsum(rates))
            yield f"class {index} asks for {asks} and gets {gets}"


def _sharing(problem: Problem, solution: Solution) -> Iterator[str]:
    on: dict[int, list[Assignment]] = defaultdict(list)
    for part in solution.assignments:
        on[part.device].append(part)
    kinds = {kind.name: kind for kind in problem.kinds}
    slower = _slower(problem, solution)
    for device, parts in on.items():
        busy = fsum(_time(problem, part) for part in parts) * slower[device]
        if _above(busy, problem.load):
            yield f"device {device} is busy for {apart(busy, problem.load, 3)[0]} of its time"
        offers = {part.offer: problem.offers[part.offer] for part in parts}
        memory = {(o.task, o.variant): o.memory_mib for o in offers.values()}
        limit = kinds[solution.devices[device]].memory_mib
        if _above(fsum(memory.values()), limit):
            holds, has = apart(fsum(memory.values()), limit)
            yield f"device {device} holds {holds} MiB of {has}"
        times = {p: offers[p.offer].curve.latency_ms(p.batch_size) * slower[device] for p in parts}
        longest = max(times.values())
        for part, own in times.items():
            slo = problem.demand[part.demand].latency_ms
            if _above(longest + own + problem.overhead_ms, slo):
                needs, has = apart(longest + own + problem.overhead_ms, slo)
                yield (
                    f"class {part.demand} on device {device}: waits {ms(longest)}, runs {ms(own)}: "
                    f"needs {needs} ms, and has {has} ms"
                )


def _totals(problem: Problem, solution: Solution) -> Iterator[str]:
    prices = {kind.name: kind.usd_per_hour for kind in problem.kinds}
    served = fsum(part.qps for part in solution.assignments)
    weighed = fsum(p.qps * problem.offers[p.offer].accuracy for p in solution.assignments)
    totals = {
        "served_qps": served,
        "accuracy": weighed / served if served else 0.0,
        "usd_per_hour": fsum(prices[name] for name in solution.devices),
    }
    for name, value in totals.items():
        said = getattr(solution, name)
        if not abs(said - value) <= TOLERANCE * max(1.0, abs(value)):
            yield f"says {name} is {said!r}, it is {value!r}"
    proven = {"objective": solution.objective, "bound": solution.bound}
    if solution.power is not None:
        drawn = {field.name: getattr(solution.power, field.name) for field in fields(Power)}
        proven |= {name: number for name, number in drawn.items() if number is not None}
    yield from (f"says {name} is nan" for name, number in proven.items() if isnan(number))
    by_class: dict[int, float] = defaultdict(float)
    for part in solution.assignments:
        by_class[part.demand] += part.qps
    whole = all(
        by_class[index] >= demand.qps * (1 - TOLERANCE)
        for index, demand in enumerate(problem.demand)
    )
    if solution.feasible != whole:
        yield f"says feasible is {solution.feasible}, it is {whole}"


def _slower(problem: Problem, solution: Solution) -> dict[int, float]:
    """By device, times what profiles say that its batches take: more beside other variants."""
    variants: dict[int, set[tuple[str, str]]] = defaultdict(set)
    for part in solution.assignments:
        offer = problem.offers[part.offer]
        variants[part.device].add((offer.task, offer.variant))
    interference = {kind.name: kind.interference for kind in problem.kinds}
    return {
        device: 1.0 + interference[solution.devices[device]] if len(found) > 1 else 1.0
        for device, found in variants.items()
    }


def _time(problem: Problem, part: Assignment) -> float:
    latency_ms = problem.offers[part.offer].curve.latency_ms(part.batch_size)
    return part.qps * latency_ms / (1000 * part.batch_size)
