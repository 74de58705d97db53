"""Weak duality: whatever device time costs, nobody can gain more than these prices say.

Let every query in time earn alpha x accuracy + beta, and let device time cost a price in each
window on each kind. A query that is served by an option takes at least ``row_ms`` of device time,
all of it between its arrival and its deadline, so it pays at least ``row_ms`` times the least price
in between. What all queries earn is then at most what is left to each at its best option, plus the
price of all device time there is: true for any prices that are not negative. The best prices come
from a linear program; errors of its solver only make the bound less tight.
"""

import numpy as np

from planner.bounds.classes import Classes
from planner.bounds.devices import DeviceTime
from planner.bounds.lines import Line
from planner.bounds.windows import Floats, range_least


def dues(classes: Classes, prices: Floats) -> Floats:
    """Per option, the least that a query pays; ``prices`` has the shape (kinds, windows)."""
    found = np.empty(len(classes.of))
    for kind in range(classes.kinds):
        at = np.nonzero(classes.kind == kind)[0]
        of = classes.of[at]
        least = range_least(prices[kind], classes.first, classes.last)
        found[at] = classes.row_ms[at] * least[of]
    return found


def most_earned(
    classes: Classes, time: DeviceTime, prices: Floats, alpha: float, beta: float
) -> float:
    """What the queries in time can earn at most, at the price of each resource per ms."""
    paid = dues(classes, time.prices(prices))
    return gains(classes, alpha * classes.accuracy + beta - paid) + time.worth(prices)


def gains(classes: Classes, left: Floats) -> float:
    """The sum over queries of what is left to each at its best option, if that is more than 0."""
    if not len(classes.begin):
        return 0.0
    best = np.maximum.reduceat(left, classes.begin)
    return float((classes.queries * np.maximum(best, 0.0)).sum())


def accuracy_line(classes: Classes, time: DeviceTime, prices: Floats, beta: float) -> Line:
    """Bounds the sum of accuracies of the queries in time.

    With n in time, sum of accuracies = sum of (accuracy + beta) - beta x n.
    """
    return Line(most_earned(classes, time, prices, 1.0, beta), -beta)
