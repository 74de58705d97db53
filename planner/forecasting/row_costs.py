"""What a row of a class costs at least: the unit in which room for demand is counted.

Where tasks take turns, as many rows per second are now more work and now less. Room that is kept
in rows would follow the mix; in what rows cost it stays.
"""

from bisect import bisect_left
from math import inf

from planner.forecasting.demand import SloClass
from variants.types import CatalogSnapshot, Stage, TaskName

MS_PER_HOUR = 3_600_000.0


class RowCosts:
    """USD of a row by the cheapest variant that may answer it, in the batch that suits it best.

    Where some device kind has no price all cost 1 USD an hour, so that time counts alone. Deadlines
    are left out: what counts is how much work one class is beside another.
    """

    def __init__(self, catalog: CatalogSnapshot) -> None:
        prices = {kind.name: kind.usd_per_hour for kind in catalog.device_kinds}
        if not all(price > 0.0 for price in prices.values()):
            prices = dict.fromkeys(prices, 1.0)
        live = {
            (each.task, each.model, each.version)
            for each in catalog.versions
            if each.stage is Stage.LIVE
        }
        accuracies = {
            (each.task, each.name): each.accuracy
            for each in catalog.variants
            if (each.task, each.model, each.version) in live
        }
        found: dict[TaskName, dict[float, float]] = {}
        for profile in catalog.profiles:
            accuracy = accuracies.get((profile.task, profile.variant))
            if accuracy is None or profile.device_kind not in prices:
                continue
            least_ms = min(point.p50_ms / point.batch_size for point in profile.points)
            usd = least_ms / MS_PER_HOUR * prices[profile.device_kind]
            of_task = found.setdefault(profile.task, {})
            of_task[accuracy] = min(of_task.get(accuracy, inf), usd)
        self._found = {task: _from_accuracy(costs) for task, costs in found.items()}

    def of(self, task: TaskName, slo: SloClass) -> float:
        """USD of a row of a class; 0 where no variant could answer it."""
        steps = self._found.get(task)
        if steps is None:
            return 0.0
        _, floor = slo
        index = 0 if floor is None else bisect_left(steps, (floor, -inf))
        return steps[index][1] if index < len(steps) else 0.0


def _from_accuracy(costs: dict[float, float]) -> list[tuple[float, float]]:
    """Each accuracy, ascending, with the least cost of any that is as accurate."""
    steps = []
    least = inf
    for accuracy in sorted(costs, reverse=True):
        least = min(least, costs[accuracy])
        steps.append((accuracy, least))
    return steps[::-1]
