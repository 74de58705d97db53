"""By class: how sure a mean over classes is, from what clients said of rows of each.

Where each class counts alike (``balanced``, ``f1``), the share of right rows is another number than
the accuracy. What is known is then, for each class, how many of the rows that concern it were
right:

- ``balanced`` is the mean of the recalls. The rows of a class concern it.
- ``f1`` is the mean of 2J / (1 + J), where J (Jaccard, 1912) is the share of right rows among those
  that have the class or are answered so. These concern it.

Of one class the ratio of prior to posterior of ``planner.canary.sequences`` holds at all times.
With ``M`` its inverse, a martingale that begins at 1 for each class:

- *balanced*: a row concerns one class, so the product of all ``M`` is a martingale as well. It is
  above ``1 / alpha`` with probability ``alpha`` at most, ever (Ville, 1939).
- *f1*: a wrong row concerns two classes, and the product is none. That of the roots of all ``M`` is
  a supermartingale: a right row of class k multiplies it by sqrt(y_k) <= (1 + y_k) / 2, and a wrong
  one by sqrt(x_i x_j) <= (x_i + x_j) / 2. With c_k and w_k the chances of a right and of a wrong
  row that concern class k, c_k y_k + w_k x_k = c_k + w_k, and each wrong row is in two of the w_k.
  So the expected factor is at most sum(c_k / 2 + (c_k + w_k) / 2) = sum(c_k) + sum(w_k) / 2 = 1.

So the shares of all classes together stay where the sum of the logarithms is below
``log(1 / alpha)``, for ``f1`` below twice that. The least and the largest mean there are found by
one multiplier for all classes, because minus the logarithm of a likelihood is convex in a recall
and in an F1. Where classes are many or as frequent, this is much narrower than a sequence for each
class at a part of the error; where one of few is rare, it is a little wider. So both are taken, at
half the error each, and what either excludes is excluded (docs/decisions/0045).

A class of which nothing was said may be anything from 0 to 1.
"""

from collections.abc import Mapping
from math import lgamma, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.canary.sequences import PRIOR
from variants.metrics.metric import Metric, MetricKind

MOST_CLASSES = 256
"""Of a task of which rows are counted by class. With more there are too few rows of each."""
_HALVINGS = 20
_TRIED, _ROUNDS = 64, 3
_LARGEST = 1e9
"""Of the multiplier: shares are at their ends there."""

_Floats = NDArray[np.float64]


class Said(NamedTuple):
    """What clients said of one class."""

    found: int
    """Rows of it that were answered so."""
    missed: int
    """Rows of it that were answered otherwise."""
    taken: int
    """Rows of other classes that were answered so."""


ByClass = Mapping[int, Said]
"""By number of the class."""


def rows_of(said: ByClass) -> int:
    """Rows of which clients have said what was right."""
    return sum(each.found + each.missed for each in said.values())


def mean_of(metric: Metric, said: ByClass) -> float:
    """The metric over the classes of which something was said, as ``variants.metrics`` has it; 0
    without any."""
    right, wrong = _counted(metric, said)
    if not len(right):
        return 0.0
    shares = right / (right + wrong)
    return float((shares if metric.kind is MetricKind.BALANCED else _f1(shares)).mean())


def mean_bounds(metric: Metric, said: ByClass, classes: int, alpha: float) -> tuple[float, float]:
    """The least and the largest mean over all classes that was not excluded.

    Args:
        classes: how many the task has.
        alpha: how probable it is that the truth is ever outside.
    """
    right, wrong = _counted(metric, said)
    unsaid = classes - len(right)
    if not len(right):
        return 0.0, 1.0
    balanced = metric.kind is MetricKind.BALANCED
    measure, slope = (_itself, _slope) if balanced else (_f1, _f1_slope)
    budget = -log(alpha / 2) * (1.0 if balanced else 2.0)
    budget_alone = -log(alpha / (2 * classes))
    evidences = np.array(list(map(_log_evidence, right.tolist(), wrong.tolist())))
    evidence = float(evidences.sum())
    seen = right / (right + wrong)

    def at(multipliers: _Floats, end: float) -> _Floats:
        """Where between what was seen and an end of [0, 1] the slope of each is as large,
        ``(classes, multipliers)``."""
        inside = np.repeat(seen[:, None], len(multipliers), axis=1)
        outside = np.full_like(inside, end)
        for _ in range(_HALVINGS):
            middle = (inside + outside) / 2
            steep = np.abs(slope(middle, right[:, None], wrong[:, None])) > multipliers
            outside = np.where(steep, middle, outside)
            inside = np.where(steep, inside, middle)
        return outside

    def edge(end: float) -> float:
        """The mean at that end of what is not excluded."""
        low, high = -log(_LARGEST), log(_LARGEST)
        for _ in range(_ROUNDS):
            tried = np.linspace(low, high, _TRIED)
            shares = at(np.exp(tried), end)
            excluded = evidence - _log_likelihood(shares, right, wrong).sum(axis=0) > budget
            first = max(1, int(excluded.argmax())) if excluded.any() else _TRIED - 1
            low, high = tried[first - 1], tried[first]
        return mean(shares[:, first], end)

    def edge_alone(end: float) -> float:
        """The same by a sequence for each class."""
        inside, outside = seen, np.full_like(seen, end)
        for _ in range(2 * _HALVINGS):
            middle = (inside + outside) / 2
            likelihoods = _log_likelihood(middle[:, None], right, wrong)[:, 0]
            excluded = evidences - likelihoods > budget_alone
            outside = np.where(excluded, middle, outside)
            inside = np.where(excluded, inside, middle)
        return mean(outside, end)

    def mean(shares: _Floats, end: float) -> float:
        """Over all classes; of those of which nothing was said, the end."""
        return float(measure(shares).sum() + end * unsaid) / classes

    low, high = (edge(0.0), edge_alone(0.0)), (edge(1.0), edge_alone(1.0))
    return max(0.0, *low), min(1.0, *high)


def _counted(metric: Metric, said: ByClass) -> tuple[_Floats, _Floats]:
    """Right and wrong rows of each class that some concern."""
    balanced = metric.kind is MetricKind.BALANCED
    pairs = [
        (each.found, each.missed if balanced else each.missed + each.taken)
        for _, each in sorted(said.items())
    ]
    both = np.array([pair for pair in pairs if any(pair)], np.float64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _itself(share: _Floats) -> _Floats:
    return share


def _f1(jaccard: _Floats) -> _Floats:
    return 2 * jaccard / (1 + jaccard)


def _slope(share: _Floats, right: _Floats, wrong: _Floats) -> _Floats:
    """Of the logarithm of the likelihood of each, by its share."""
    with np.errstate(divide="ignore", invalid="ignore"):  # at 0 and 1
        return right / share - wrong / (1 - share)


def _f1_slope(jaccard: _Floats, right: _Floats, wrong: _Floats) -> _Floats:
    """The same by its F1."""
    return _slope(jaccard, right, wrong) * (1 + jaccard) ** 2 / 2


def _log_likelihood(shares: _Floats, right: _Floats, wrong: _Floats) -> _Floats:
    """Of each class; ``shares`` are ``(classes, several)``, and so is what is returned."""
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(right[:, None] > 0, right[:, None] * np.log(shares), 0.0)
        each += np.where(wrong[:, None] > 0, wrong[:, None] * np.log1p(-shares), 0.0)
    return np.asarray(each)


def _log_evidence(right: float, wrong: float) -> float:
    """Of what was seen of one class, over all shares by the prior."""
    a, b = PRIOR
    return _log_beta(a + right, b + wrong) - _log_beta(a, b)


def _log_beta(a: float, b: float) -> float:
    return lgamma(a) + lgamma(b) - lgamma(a + b)
