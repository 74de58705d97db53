"""Options that a relaxation needs: those that no other one, and no mixture of two, replaces."""

from collections import defaultdict
from collections.abc import Collection, Sequence

from planner.solver.options import Options
from planner.types import Objective
from planner.upper_hull import upper_hull


def useful(options: Options, objective: Objective) -> tuple[int, ...]:
    """Indices, ascending, of the options of offers that no other on the same kind dominates.

    One dominates if it serves every class that the other serves, at most as expensive in time
    and in memory, and, where accuracy counts, at least as accurate. Exchanging the dominated
    for the dominating one never breaks a constraint of the relaxation.
    """
    return options.once(("useful", objective), lambda: _useful(options, objective))


def _useful(options: Options, objective: Objective) -> tuple[int, ...]:
    # By kind and task: the options of each offer, by class.
    groups: dict[tuple[int, str], dict[int, dict[int, int]]] = {}
    tasks = [offer.task for offer in options.problem.offers]
    for index, (demand, offer, kind, *_) in enumerate(options.all):
        offers = groups.get(where := (kind, tasks[offer]))
        if offers is None:
            offers = groups[where] = {}
        if offer in offers:
            offers[offer][demand] = index
        else:
            offers[offer] = {demand: index}
    accurate = objective is Objective.ACCURACY
    kept: list[int] = []
    for offers in groups.values():
        chosen: list[tuple[float, float, dict[int, int]]] = []
        ranked = list(offers.values())
        if len(ranked) > 1:
            ranked.sort(key=lambda classes: _rank(options, classes, objective))
        for classes in ranked:
            one = options.all[next(iter(classes.values()))]
            accuracy, memory_mib = one.accuracy, one.memory_mib
            for first_accuracy, first_mib, by in chosen:
                if (
                    first_mib <= memory_mib
                    and (not accurate or first_accuracy >= accuracy)
                    and _dominates(options, by, classes)
                ):
                    break
            else:
                chosen.append((accuracy, memory_mib, classes))
                kept.extend(classes.values())
    return tuple(sorted(kept))


def hull(
    options: Options, indices: Sequence[int], objective: Objective, *, but: Collection[int]
) -> tuple[int, ...]:
    """Per class and kind, the options that no mixture of two others replaces in time.

    For cost that is the fastest alone, unless what runs has a cost of its own.

    Args:
        indices: the options to choose from.
        objective: whether accuracy counts beside time.
        but: kinds on which all options are kept.

    Returns:
        Indices of those that are kept, ascending.
    """
    what = ("hull", tuple(indices), objective, frozenset(but))
    return options.once(what, lambda: _hull(options, indices, objective, but))


def _hull(
    options: Options, indices: Sequence[int], objective: Objective, but: Collection[int]
) -> tuple[int, ...]:
    groups: dict[tuple[int, int], list[tuple[float, float, int]]] = defaultdict(list)
    kept: list[int] = []
    every, has_work = options.all, options.has_work
    for index in indices:
        demand, _, kind, accuracy, _, alone, _, _, least_work = every[index]
        if kind in but:
            kept.append(index)
        else:
            worth = -least_work if has_work else accuracy
            groups[demand, kind].append((alone.unit_ms, worth, index))
    for points in groups.values():
        if len(points) > 1:
            points.sort(key=lambda point: (point[0], -point[1]))
        if objective is Objective.COST and not options.has_work:
            kept.append(points[0][2])
        else:
            kept.extend(point[2] for point in upper_hull(points))
    return tuple(sorted(kept))


def _rank(options: Options, classes: dict[int, int], objective: Objective) -> tuple[float, ...]:
    """Sorted by this, no offer is dominated by a later one, ties aside."""
    group = list(map(options.all.__getitem__, classes.values()))
    first = group[0]
    accuracy = -first.accuracy if objective is Objective.ACCURACY else 0.0
    if options.has_work:
        accuracy = min(option.least_work for option in group)
    time = sum([option.alone.unit_ms for option in group])
    return (accuracy, -len(group), time, first.memory_mib, first.offer)


def _dominates(options: Options, by: dict[int, int], than: dict[int, int]) -> bool:
    """Whether an offer serves every class of another at most as expensively in time."""
    for demand, index in than.items():
        quicker = by.get(demand)
        if quicker is None:
            return False
        one, other = options.all[quicker], options.all[index]
        if one.alone.unit_ms > other.alone.unit_ms or one.least_work > other.least_work:
            return False
    return True
