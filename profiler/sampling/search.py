"""Which configurations of a model to measure next, until what is left can be predicted.

Ask and tell: the caller measures what ``next`` names, ``tell`` s what came out, and stops when it
likes; ``surface`` answers for every configuration at any time.

Two aims take turns. One is the best choice for each latency SLO: the expected improvement of the
throughput over the best measured configuration that fits, summed over the SLOs, which weighs what
is likely against what would be gained (Jones, Schonlau and Welch, *Efficient Global Optimization*,
1998, with the SLO as constraint as in CherryPick, NSDI 2017, and Morphling, SoCC 2021). The other
is a prediction that holds everywhere: the measurement that takes most variance off all others
(A-optimal design). By that rule every kind is measured once before anything else, the numbers of
threads in turns.
"""

from collections.abc import Callable, Mapping, Sequence
from math import log
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from profiler.sampling.costmodel import CostModel, Prediction
from profiler.sampling.latency_surface import LatencySurface, Tails, surface, throughput
from profiler.sampling.prior import History
from profiler.sampling.space import Configuration, Space
from variants.types import LatencyPoint

Array = NDArray[np.float64]

SHARE = 0.2
"""Largest share of the space that is measured."""
LEAST = 4
"""So many are measured in any case: of one kind with one number of threads a fifth of the sizes
is one, from which no curve follows."""
SLOS_MS = (2.0, 5.0, 10.0, 50.0, 200.0)
WORTH = 0.01
"""Expected improvement of an SLO's throughput that a measurement is worth."""
SURE = 0.06
"""The 90th percentile of the errors at which measuring more is not worth it."""


class Model(Protocol):
    """A model that predicts latencies from measured ones, in ms."""

    def predict(self, seen: Mapping[Configuration, float]) -> Prediction: ...


class Search:
    """One model's space on one device kind.

    The history, p50 of other models on the same machine, leaves less to find out.
    """

    def __init__(
        self,
        space: Space,
        *,
        history: History | None = None,
        model: Callable[[Sequence[Configuration], History], Model] = CostModel,
    ) -> None:
        self._space = space
        self._model = model(space.configurations, history or {})
        self._told: dict[Configuration, LatencyPoint] = {}
        self._left_out: set[Configuration] = set()
        self._prediction: Prediction | None = None

    @property
    def left(self) -> int:
        """Measurements that may still be made; fewer are if all is clear before."""
        usable = len(self._space) - len(self._left_out)
        most = max(int(SHARE * usable + 1e-9), min(LEAST, usable))
        return max(0, most - len(self._told))

    @property
    def measured(self) -> Mapping[Configuration, LatencyPoint]:
        """What was told so far."""
        return dict(self._told)

    def next(self) -> Configuration | None:
        """What to measure now; None when enough is known or the share is used up."""
        return self._chosen() if self.left else None

    def tell(self, configuration: Configuration, point: LatencyPoint) -> None:
        """Take in a measurement, whether ``next`` named it or not.

        Raises:
            ValueError: it is no point of the space.
        """
        if configuration not in self._space.configurations:
            raise ValueError(f"{configuration} is not in the space")
        self._told[configuration] = point
        self._prediction = None

    def leave_out(self, kind: str, threads: int | None = None, above: int = 0) -> None:
        """A kind fails, or it does with that many threads, or is too slow for batches ``above``."""
        self._left_out |= {
            each
            for each in self._space.configurations
            if each.kind == kind and threads in (None, each.threads) and each.batch_size > above
        }

    def surface(self) -> LatencySurface:
        """Everything, as far as it is known now.

        Raises:
            ValueError: nothing was measured yet.
        """
        if not self._told:
            raise ValueError("nothing was measured, so nothing can be said")
        return surface(self._predicted(), self._told, self._left_out)

    def _open(self) -> NDArray[np.bool_]:
        """``(configurations,)``: which may still be measured."""
        return np.array(
            [
                each not in self._told and each not in self._left_out
                for each in self._space.configurations
            ]
        )

    def _predicted(self) -> Prediction:
        if self._prediction is None:
            seen = {each: point.p50_ms for each, point in self._told.items()}
            self._prediction = self._model.predict(seen)
        return self._prediction

    def _untouched(self, candidates: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """``(configurations,)``: candidates of kinds of which nothing was measured yet, with this
        turn's number of threads.

        None of them if there is no room for all those kinds.
        """
        touched = {each.kind for each in self._told}
        threads = self._space.threads[len(self._told) % len(self._space.threads)]
        kinds = {
            each.kind
            for each, candidate in zip(self._space.configurations, candidates, strict=True)
            if candidate and each.kind not in touched
        }
        if len(kinds) > self.left:
            return np.zeros_like(candidates)
        of_kinds = np.array([each.kind in kinds for each in self._space.configurations])
        in_turn = np.array([each.threads == threads for each in self._space.configurations])
        fresh: NDArray[np.bool_] = candidates & of_kinds
        return fresh & in_turn if (fresh & in_turn).any() else fresh

    def _chosen(self) -> Configuration | None:
        prediction, candidates = self._predicted(), self._open()
        if not candidates.any():
            return None
        taken = variance_taken(prediction, candidates)
        untouched = self._untouched(candidates)
        if untouched.any():
            return _highest(prediction, taken, untouched)
        gains = np.where(candidates, self._gains(prediction), 0.0)
        if gains.max() >= WORTH and len(self._told) % 2:
            return _highest(prediction, gains.sum(0), candidates)
        if gains.max() < WORTH and np.quantile(prediction.error[candidates], 0.9) <= SURE:
            return None
        return _highest(prediction, taken, candidates)

    def _gains(self, prediction: Prediction) -> Array:
        """Expected relative gain of throughput, ``(slos, configurations)``."""
        tails = Tails(self._told)
        tail = np.array([tails.ratios(each.kind)[0] for each in prediction.configurations])
        rows = np.log([each.batch_size for each in prediction.configurations])
        gains = []
        for slo_ms in SLOS_MS:
            fitting = [throughput(each) for each in self._told.values() if each.p95_ms <= slo_ms]
            best = max(fitting, default=None)
            limit = log(slo_ms) - tail
            gains.append(
                expected_improvement(prediction.mean, prediction.spread, rows, limit, best)
            )
        return np.array(gains)


def expected_improvement(
    mean: Array, sd: Array, log_rows: Array, log_limit: Array, best: float | None
) -> Array:
    """``(configurations,)`` expected relative gain over the throughput ``best`` in rows per ms, of
    latencies that are log-normal and limited. All arrays are ``(configurations,)``.

    Of a latency x, the gain is ``rows / (x best) - 1`` where that is positive and x within its
    limit. Above the cut-off of both it is 0; below, the integral over the log-normal density has a
    closed form. With nothing to beat, it is the probability of being within the limit.
    """
    from scipy.stats import norm

    if best is None:
        within: Array = norm.cdf((log_limit - mean) / sd)
        return within
    at_par = log_rows - log(best)
    cut = (np.minimum(log_limit, at_par) - mean) / sd
    gained = np.exp(at_par - mean + sd**2 / 2) * norm.cdf(cut + sd)
    gain: Array = np.clip(gained - norm.cdf(cut), 0.0, 1.0)
    return gain


def _highest(prediction: Prediction, score: Array, candidates: NDArray[np.bool_]) -> Configuration:
    """The candidate with the highest score; both arrays are ``(configurations,)``."""
    return prediction.configurations[int(np.where(candidates, score, -np.inf).argmax())]


def variance_taken(prediction: Prediction, of: NDArray[np.bool_]) -> Array:
    """``(configurations,)``: total variance that measuring each of them would take off those that
    ``of`` ``(configurations,)`` selects."""
    covariance = prediction.covariance
    taken: Array = (covariance[:, of] ** 2).sum(1) / prediction.error**2
    return taken
