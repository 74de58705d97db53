"""What a configuration takes, predicted from a few that were measured, and how surely.

Inference is Laplace's approximation: the curves of ``profiler.sampling.prior`` are linear in their
numbers around the likeliest ones, found by Gauss-Newton steps, each a regression by scikit-learn's
Gaussian process. All in logarithms of milliseconds, so that errors are relative.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np

from profiler.sampling.prior import (
    NUMBERS,
    Array,
    History,
    Numbers,
    Points,
    curves_of,
    expected,
    root_of,
    thinned,
)
from profiler.sampling.space import Configuration

NOISE = (0.01, 0.02, 0.04, 0.07, 0.12, 0.2)
"""Standard deviations that are tried for the error of a single measurement, and of a configuration
from its neighbours; the likeliest is taken."""
NOISE_GUESS, NOISE_SPREAD = 0.04, 1.0
"""Median of the noise, and standard deviation of its logarithm, before anything was measured."""

_STEPS, _LONGEST_STEP, _SETTLED = 40, 1.0, 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Joint normal prediction of the logarithm of milliseconds."""

    configurations: tuple[Configuration, ...]
    mean: Array
    """``(configurations,)``"""
    covariance: Array
    """``(configurations, configurations)`` of the underlying latency, noise left out."""
    noise: float
    """Standard deviation of the error of a single measurement, or of a single configuration."""

    @property
    def spread(self) -> Array:
        """``(configurations,)`` standard deviations of the underlying latency."""
        return np.sqrt(np.clip(np.diagonal(self.covariance), 1e-12, None))

    @property
    def error(self) -> Array:
        """``(configurations,)`` standard deviations of what would be measured."""
        return np.hypot(self.spread, self.noise)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fitted:
    numbers: Array
    """The likeliest, ``(curves, 4)``."""
    process: Any
    """A regressor of the residuals that remain of the prior's mean, made linear around them."""
    noise: float


_OWN = ""
"""The model that is predicted; those of the history have names."""


class CostModel:
    """Predicts the latencies of one model's configurations.

    The history has to be of the same machine: what carries over is how its runtimes behave there.
    """

    def __init__(
        self, configurations: Sequence[Configuration], history: History | None = None
    ) -> None:
        self._configurations = tuple(configurations)
        self._index = {each: index for index, each in enumerate(self._configurations)}
        self._prior, self._points = _taught(self._configurations, history or {})

    def predict(self, seen: Mapping[Configuration, float]) -> Prediction:
        """Every configuration's latency, given the measured ones in ms; a few milliseconds.

        Raises:
            KeyError: something was seen that is not among the configurations.
        """
        chosen = np.array([self._index[each] for each in seen], dtype=np.int64)
        logs = np.log(np.array(list(seen.values()), dtype=np.float64))
        fitted = _fit(self._prior, self._points[chosen], logs)
        expected, moves = _linear(self._prior, self._points, fitted.numbers)
        mean, covariance = fitted.process.predict(moves, return_cov=True)
        return Prediction(
            configurations=self._configurations,
            mean=expected + mean,
            covariance=covariance,
            noise=fitted.noise,
        )


def _formula(numbers: Array, points: Points) -> tuple[Array, Array]:
    """Log milliseconds on the curves ``(points,)``, and their slopes by each of the four numbers
    ``(points, 4)``; ``numbers`` is ``(curves, 4)``."""
    overhead, work, gain, cost = numbers[points.curve].T
    called = overhead + cost * points.log_threads
    worked = work + points.log_batch - gain * points.log_threads
    total = np.logaddexp(called, worked)
    share = np.exp(called - total)
    slopes = np.stack(
        [share, 1 - share, (share - 1) * points.log_threads, share * points.log_threads], axis=1
    )
    return total, slopes


def _linear(prior: Numbers, points: Points, numbers: Array) -> tuple[Array, Array]:
    """Expected log milliseconds ``(points,)``, and how each direction moves them ``(points,
    directions)``; linear around ``numbers`` ``(curves, 4)``."""
    value, slopes = _formula(numbers, points)
    shift = ((prior.mean - numbers)[points.curve] * slopes).sum(1)
    moves = np.einsum("pn,pnz->pz", slopes, prior.root[points.curve]) + points.bend_root
    return value + shift + points.bend, moves


def _fit(prior: Numbers, points: Points, logs: Array) -> _Fitted:
    """The likeliest numbers given log milliseconds ``logs`` ``(points,)``, and what remains
    open."""
    numbers = prior.mean.copy()
    if len(logs):
        numbers[:, :2] += (logs - _formula(numbers, points)[0]).mean()
    numbers = _likeliest(prior, points, logs, numbers, NOISE_GUESS)
    noise = max(NOISE, key=lambda noise: _plausible(prior, points, logs, numbers, noise))
    numbers = _likeliest(prior, points, logs, numbers, noise)
    process = _regressed(prior, points, logs, numbers, noise)
    return _Fitted(numbers=numbers, process=process, noise=noise)


def _likeliest(prior: Numbers, points: Points, logs: Array, numbers: Array, noise: float) -> Array:
    """``(curves, 4)``: Gauss-Newton steps from ``numbers`` until they change no more."""
    if not len(logs):
        return numbers
    for _ in range(_STEPS):
        process = _regressed(prior, points, logs, numbers, noise)
        step = prior.mean + prior.root @ (process.X_train_.T @ process.alpha_) - numbers
        numbers = numbers + np.clip(step, -_LONGEST_STEP, _LONGEST_STEP)
        if np.abs(step).max() < _SETTLED:
            break
    return numbers


def _regressed(prior: Numbers, points: Points, logs: Array, numbers: Array, noise: float) -> Any:
    """A Gaussian process through the points, the formula made linear around ``numbers``.

    Its inputs are the moves along independent standard normal directions, so that their inner
    product is the covariance.
    """
    from sklearn import config_context
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import DotProduct

    process = GaussianProcessRegressor(
        DotProduct(0.0, "fixed"), alpha=noise**2, optimizer=None, copy_X_train=False
    )
    if not len(logs):
        return process
    expected, moves = _linear(prior, points, numbers)
    with config_context(assume_finite=True, skip_parameter_validation=True):
        return process.fit(moves, logs - expected)


def _plausible(prior: Numbers, points: Points, logs: Array, numbers: Array, noise: float) -> float:
    """Log likelihood of a noise, up to a constant, its prior included."""
    prior_part = -0.5 * (log(noise / NOISE_GUESS) / NOISE_SPREAD) ** 2
    if not len(logs):
        return prior_part
    process = _regressed(prior, points, logs, numbers, noise)
    return prior_part + float(process.log_marginal_likelihood_value_)


def _taught(configurations: Sequence[Configuration], history: History) -> tuple[Numbers, Points]:
    """The prior given the history: what to expect before anything of this model was measured."""
    owned = [(_OWN, each) for each in configurations]
    sited = owned + thinned(history)
    numbers, points = expected(sited)
    if not history:
        return numbers, points
    own, taught = np.arange(len(owned)), np.arange(len(owned), len(sited))
    logs = np.log([history[model][each] for model, each in sited[len(owned) :]])
    process = _fit(numbers, points[taught], logs).process
    curves = len(curves_of(owned))
    moves = np.vstack(
        [numbers.root[:curves].reshape(curves * NUMBERS, -1), points.bend_root[: len(owned)]]
    )
    mean, covariance = process.predict(moves, return_cov=True)
    root = root_of(covariance)
    of_numbers, of_bends = slice(None, curves * NUMBERS), slice(curves * NUMBERS, None)
    before = points[own]
    return (
        Numbers(
            mean=numbers.mean[:curves] + mean[of_numbers].reshape(curves, NUMBERS),
            root=root[of_numbers].reshape(curves, NUMBERS, -1),
        ),
        Points(
            curve=before.curve,
            log_threads=before.log_threads,
            log_batch=before.log_batch,
            bend=mean[of_bends],
            bend_root=root[of_bends],
        ),
    )
