"""What differs between two plans, in words: workers, what they hold, and who answers how much.

A plan is made anew whenever demand has moved by a tenth, and mostly says the same as the one before
with slightly other shares. What is only that is no news (``is_news``).
"""

from collections.abc import Iterable, Iterator, Mapping

from variants.figures import counted, some_of
from variants.types import Plan, TaskName, VariantKey, VariantName

MOVED = 0.05
"""A variant whose part of its task's planned demand moved by less has about the same: so large is
the standard error of a half that a hundred queries tell."""
MOST = 4
"""So many workers or variants are named."""


def is_news(before: Plan | None, after: Plan) -> bool:
    """Whether workers, what they hold, or who answers has changed by more than noise."""
    return before is None or any(_changes(before, after))


def plan_changes(before: Plan | None, after: Plan) -> list[str]:
    """A clause for each thing that differs; empty where nothing does, or there was no plan."""
    if before is None:
        return []
    return list(_changes(before, after))


def _changes(before: Plan, after: Plan) -> Iterator[str]:
    for kind in sorted(before.workers.keys() | after.workers.keys()):
        had, has = before.workers.get(kind, 0), after.workers.get(kind, 0)
        if had != has:
            yield f"{counted(has, 'worker')} {kind} instead of {had}"
    yield from _held(before, after)
    yield from _parts(before, after)


def _held(before: Plan, after: Plan) -> Iterator[str]:
    """Variants that come, leave or move, and workers as a whole."""
    had, has = _by_worker(before), _by_worker(after)
    for worker in sorted(has.keys() - had.keys()):
        yield f"{worker} gets {counted(len(has[worker]), 'variant')}"
    if gone := sorted(had.keys() - has.keys()):
        yield f"{some_of(gone, MOST)} {'has' if len(gone) == 1 else 'have'} nothing any more"
    staying = sorted(had.keys() & has.keys())
    came = [(key, worker) for worker in staying for key in sorted(has[worker] - had[worker])]
    left = [(key, worker) for worker in staying for key in sorted(had[worker] - has[worker])]
    leaving = dict(left)
    moved = [(key, leaving[key], worker) for key, worker in came if key in leaving]
    once = {key for key, _, _ in moved}
    for words in (
        [f"{_name(key)} moves from {from_} to {to}" for key, from_, to in moved],
        [f"{_name(key)} comes to {worker}" for key, worker in came if key not in once],
        [f"{_name(key)} leaves {worker}" for key, worker in left if key not in once],
    ):
        yield from words[:MOST]
        if len(words) > MOST:
            verb = words[0].split()[1]
            more = len(words) - MOST
            yield f"{more} more {verb if more == 1 else verb.removesuffix('s')}"


def _parts(before: Plan, after: Plan) -> Iterator[str]:
    """Variants whose part of the demand of a task moved, most first."""
    had, has = _divided(before), _divided(after)
    for task in sorted(had.keys() | has.keys()):
        then, now = had.get(task, {}), has.get(task, {})
        if not then or not now:
            yield f"{task} is {'planned for' if now else 'planned for no more'}"
            continue
        by = {name: now.get(name, 0.0) - then.get(name, 0.0) for name in then.keys() | now.keys()}
        moved = sorted((name for name in by if abs(by[name]) >= MOVED), key=lambda n: (-by[n], n))
        clauses = [
            f"{name} {_share(now, name)} instead of {_share(then, name)}" for name in moved[:MOST]
        ]
        if clauses:
            yield f"of {task} " + ", ".join(clauses)


def _by_worker(plan: Plan) -> dict[str, set[VariantKey]]:
    found: dict[str, set[VariantKey]] = {}
    for one in plan.placements:
        found.setdefault(one.worker, set()).add((one.task, one.variant))
    return found


def _divided(plan: Plan) -> dict[TaskName, Mapping[VariantName, float]]:
    """By task, the part of the planned demand that each variant answers; without pinned queries."""
    rates: dict[TaskName, dict[VariantName, float]] = {}
    for route in plan.routes:
        if not route.pinned:
            of_task = rates.setdefault(route.task, {})
            of_task[route.variant] = of_task.get(route.variant, 0.0) + route.qps
    return {
        task: {name: qps / total for name, qps in of_task.items()}
        for task, of_task in rates.items()
        if (total := sum(of_task.values())) > 0
    }


def _share(of_task: Mapping[VariantName, float], name: VariantName) -> str:
    return f"{100 * of_task.get(name, 0.0):.0f} %"


def _name(key: VariantKey) -> str:
    return "/".join(key)


def in_a_sentence(changes: Iterable[str]) -> str:
    """``Changed: 3 workers cpu-1 instead of 2; w3 gets 14 variants.``; empty without changes."""
    clauses = tuple(changes)
    return f"Changed: {'; '.join(clauses)}." if clauses else ""
