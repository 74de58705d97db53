"""Names of demand counters: how a gateway tells the control loop what was asked for.

A gateway counts rows by task and SLO and reports the counters through the live state; the control
loop reads the names back. There are few names per task, whatever clients ask for, because each SLO
is counted as its SLO class.
"""

from collections.abc import Iterable

from planner.forecasting.demand import slo_class
from variants.types import CatalogSnapshot, TaskName, VariantName


def counter_name(
    task: TaskName,
    latency_ms: float,
    floor: float | None,
    accuracies: Iterable[float],
    variant: VariantName | None = None,
) -> str:
    """The name of the counter of an SLO: ``digits|50.0|0.95``.

    Pinned queries are counted by their variant, which follows an ``@``: no name begins with it.

    Args:
        floor: the accuracy that is asked for; None where any will do.
        accuracies: those of the task's variants, to which the floor is rounded up.
    """
    steps = sorted(accuracies)
    if variant is not None:
        latency_ms, _ = slo_class(latency_ms, None, ())
        return f"{task}|{latency_ms!r}|@{variant}"
    latency_ms, floor = slo_class(latency_ms, floor, steps)
    if floor is not None and floor not in steps:
        floor = 1.0  # above every variant: nothing meets it, however high
    return f"{task}|{latency_ms!r}|{'' if floor is None else repr(floor)}"


def parse_counter_name(
    name: str,
) -> tuple[TaskName, float, float | None, VariantName | None] | None:
    """Task, latency in ms, floor and pinned variant of a counter; None for a name of another form.

    The floor is None where none was asked for, and of pinned queries.
    """
    try:
        task, latency_ms, floor = name.split("|")
        if floor.startswith("@"):
            return TaskName(task), float(latency_ms), None, VariantName(floor[1:])
        return TaskName(task), float(latency_ms), float(floor) if floor else None, None
    except ValueError:
        return None


def accuracies_of(catalog: CatalogSnapshot) -> dict[TaskName, list[float]]:
    """The accuracies of each task's variants, ascending, each once."""
    found: dict[TaskName, set[float]] = {}
    for variant in catalog.variants:
        found.setdefault(variant.task, set()).add(variant.accuracy)
    return {task: sorted(values) for task, values in found.items()}
