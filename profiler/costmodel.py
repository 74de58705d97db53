"""What a configuration takes, predicted from a few that were measured, and how surely.

Of one kind, a batch of ``b`` rows on ``t`` threads takes about ``o * t**c + w * b * t**-g``: an
overhead for each call, which grows with threads that have to be woken, and work for each row, which
they share. Four numbers make a curve, and the curves of a model resemble each other: kinds of one
runtime share most of its overhead, kinds of one precision some of their speed. So the logarithms of
the four are normal with a part for the model, for the runtime, the precision and the arithmetic,
and parts for these within the model (a hierarchical model). What such curves cannot say (a cache
that overflows, a batch size with a kernel of its own) is a Gaussian process over the logarithm of
the batch size, shared in the same manner.

Parts that do not belong to one model are the same in all of them: models that were measured before
on the same machine tell what to expect of the next, and without any the prior does.

Inference is Laplace's approximation: the curve is linear in its parameters around the likeliest
ones, found by Gauss-Newton steps, each a regression by scikit-learn's Gaussian process. All in
logarithms of milliseconds, so that errors are relative.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profiler.space import Configuration, arithmetic_of, precision_of, runtime_of

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

MEAN = (-2.5, -4.5, 0.3, 0.8)
"""Of log overhead (ms), log work (ms a row), gain and cost; the first two hardly count, since a
model's own part is far wider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Of a curve's four numbers, what all curves with the same label have in common."""

    label: Callable[[str, str], Hashable]
    """Of model and kind."""
    sd: tuple[float, float, float, float]


PARTS = (
    Part(label=lambda model, kind: runtime_of(kind), sd=(0.9, 0.4, 0.3, 0.5)),
    Part(label=lambda model, kind: precision_of(kind), sd=(0.1, 0.25, 0.15, 0.05)),
    Part(label=lambda model, kind: arithmetic_of(kind), sd=(0.15, 0.2, 0.1, 0.05)),
    Part(label=lambda model, kind: model, sd=(2.0, 4.0, 0.3, 0.3)),
    Part(label=lambda model, kind: (model, runtime_of(kind)), sd=(0.4, 0.2, 0.15, 0.3)),
    Part(label=lambda model, kind: (model, precision_of(kind)), sd=(0.1, 0.2, 0.1, 0.05)),
    Part(label=lambda model, kind: (model, arithmetic_of(kind)), sd=(0.1, 0.3, 0.1, 0.15)),
    Part(label=lambda model, kind: (model, kind), sd=(0.05, 0.05, 0.03, 0.03)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bend:
    """How all curves with the same label depart from the formula, along the batch size."""

    label: Callable[[str, str, int], Hashable]
    """Of model, kind and threads."""
    sd: float


BENDS = (
    Bend(label=lambda model, kind, threads: model, sd=0.04),
    Bend(label=lambda model, kind, threads: (model, threads), sd=0.05),
    Bend(label=lambda model, kind, threads: (model, runtime_of(kind)), sd=0.09),
    Bend(label=lambda model, kind, threads: (model, runtime_of(kind), threads), sd=0.09),
    Bend(label=lambda model, kind, threads: (model, arithmetic_of(kind)), sd=0.05),
    Bend(label=lambda model, kind, threads: (model, arithmetic_of(kind), threads), sd=0.08),
)
BEND_DOUBLINGS = 1.2
"""Length scale of a bend, in doublings of the batch size."""

NOISE = (0.01, 0.02, 0.04, 0.07, 0.12, 0.2)
"""What a single measurement may be off by, and a configuration from its neighbours; the likeliest
is taken."""
NOISE_GUESS, NOISE_SPREAD = 0.04, 1.0
"""Median and sd of the logarithm, beforehand."""

_STEPS, _LONGEST_STEP, _SETTLED = 40, 1.0, 1e-3
_FOUR = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Joint normal prediction of log milliseconds. Arrays are as long as ``configurations``."""

    configurations: tuple[Configuration, ...]
    mean: Array
    covariance: Array
    """Of the underlying latency, noise left out."""
    noise: float
    """Sd of what a single measurement, or a single configuration, is off by."""

    @property
    def spread(self) -> Array:
        """Sd of the underlying latency."""
        return np.sqrt(np.clip(np.diagonal(self.covariance), 1e-12, None))

    @property
    def error(self) -> Array:
        """Sd of what would be measured."""
        return np.hypot(self.spread, self.noise)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Points:
    """Where on which curve."""

    curve: Indices
    log_threads: Array
    log_batch: Array

    def __getitem__(self, chosen: Indices) -> "_Points":
        return _Points(
            curve=self.curve[chosen],
            log_threads=self.log_threads[chosen],
            log_batch=self.log_batch[chosen],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Normal:
    """``mean + root @ z`` with z standard normal; four numbers a curve, in their order."""

    mean: Array
    """``(curves, 4)``"""
    root: Array
    """``(4 * curves, anything)``"""

    def along(self, slopes: Array, curve: Indices) -> Array:
        """How z moves each point: ``(points, anything)``."""
        by_curve = self.root.reshape(len(self.mean), _FOUR, -1)
        moved: Array = np.einsum("pn,pnz->pz", slopes, by_curve[curve])
        return moved


class CostModel:
    """Predicts the latencies of one model's configurations.

    ``history`` has what was measured of other models on the same machine, in ms, by model.
    """

    def __init__(
        self,
        configurations: Sequence[Configuration],
        history: Mapping[str, Mapping[Configuration, float]] | None = None,
    ) -> None:
        self._configurations = tuple(configurations)
        self._index = {each: index for index, each in enumerate(self._configurations)}
        owned = [(_OWN, each) for each in self._configurations]
        curves = _curves(owned)
        self._points = _points(owned, curves)
        self._bends = _root(_bend_covariance(owned))
        self._prior = _prior(curves) if not history else _taught(curves, history)

    def predict(self, seen: Mapping[Configuration, float]) -> Prediction:
        """Every configuration's latency, given the measured ones in ms; a few milliseconds.

        Raises:
            KeyError: something was seen that is not among the configurations.
        """
        chosen = np.array([self._index[each] for each in seen], dtype=np.int64)
        logs = np.log(np.array(list(seen.values()), dtype=np.float64))
        fitted = _fit(self._prior, self._points[chosen], self._bends[chosen], logs)
        value, slopes = _formula(fitted.numbers, self._points)
        moves = np.hstack([self._prior.along(slopes, self._points.curve), self._bends])
        mean, covariance = fitted.process.predict(moves, return_cov=True)
        shift = ((self._prior.mean - fitted.numbers)[self._points.curve] * slopes).sum(1)
        return Prediction(
            configurations=self._configurations,
            mean=value + shift + mean,
            covariance=covariance,
            noise=fitted.noise,
        )


_OWN = ""
"""The model that is predicted; those of the history have names."""
_Sited = tuple[str, Configuration]
_Curve = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fitted:
    numbers: Array
    """The likeliest, ``(curves, 4)``."""
    process: Any
    """A regressor of what the prior's mean, linear around them, leaves."""
    noise: float


def _formula(numbers: Array, points: _Points) -> tuple[Array, Array]:
    """Log milliseconds at each point, and its slope by each of the four numbers."""
    overhead, work, gain, cost = numbers[points.curve].T
    called = overhead + cost * points.log_threads
    worked = work + points.log_batch - gain * points.log_threads
    total = np.logaddexp(called, worked)
    share = np.exp(called - total)
    slopes = np.stack(
        [share, 1 - share, (share - 1) * points.log_threads, share * points.log_threads], axis=1
    )
    return total, slopes


def _fit(prior: _Normal, points: _Points, bends: Array, logs: Array) -> _Fitted:
    """The likeliest numbers given log milliseconds at some points, and what they leave open."""
    numbers = prior.mean.copy()
    if len(logs):
        numbers[:, :2] += (logs - _formula(numbers, points)[0]).mean()
    noise = NOISE_GUESS
    for settle in (True, False):
        for _ in range(_STEPS):
            process = _regressed(prior, points, bends, logs, numbers, noise)
            found = prior.mean + _expected(process, prior, bends).reshape(-1, _FOUR)
            step = np.clip(found - numbers, -_LONGEST_STEP, _LONGEST_STEP)
            numbers = numbers + step
            if np.abs(step).max() < _SETTLED:
                break
        if settle:
            noise = max(NOISE, key=lambda n: _plausible(prior, points, bends, logs, numbers, n))
    process = _regressed(prior, points, bends, logs, numbers, noise)
    return _Fitted(numbers=numbers, process=process, noise=noise)


def _regressed(
    prior: _Normal, points: _Points, bends: Array, logs: Array, numbers: Array, noise: float
) -> Any:
    """A Gaussian process through the points, the formula made linear around ``numbers``.

    Its inputs are the moves along independent standard normal directions, so that their inner
    product is the covariance.
    """
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import DotProduct

    process = GaussianProcessRegressor(
        DotProduct(0.0, "fixed"), alpha=noise**2, optimizer=None, copy_X_train=False
    )
    if not len(logs):
        return process
    value, slopes = _formula(numbers, points)
    moves = np.hstack([prior.along(slopes, points.curve), bends])
    rest = logs - value + ((numbers - prior.mean)[points.curve] * slopes).sum(1)
    return process.fit(moves, rest)


def _plausible(
    prior: _Normal, points: _Points, bends: Array, logs: Array, numbers: Array, noise: float
) -> float:
    """Log likelihood of a noise, up to a constant, its prior included."""
    prior_part = -0.5 * (log(noise / NOISE_GUESS) / NOISE_SPREAD) ** 2
    if not len(logs):
        return prior_part
    process = _regressed(prior, points, bends, logs, numbers, noise)
    return prior_part + float(process.log_marginal_likelihood_value_)


def _expected(process: Any, prior: _Normal, bends: Array) -> Array:
    """The posterior mean of the numbers, less the prior's."""
    moves = np.hstack([prior.root, np.zeros((len(prior.root), bends.shape[1]))])
    expected: Array = process.predict(moves)
    return expected


def _taught(
    curves: Sequence[_Curve], history: Mapping[str, Mapping[Configuration, float]]
) -> _Normal:
    """What other models' measurements say of the curves, before any of their own."""
    sited = [(model, each) for model, seen in history.items() for each in seen]
    logs = np.log([history[model][each] for model, each in sited])
    every = [*curves, *_curves(sited)]
    prior = _prior(every)
    bends = _root(_bend_covariance(sited))
    process = _fit(prior, _points(sited, every), bends, logs).process
    own = prior.root[: _FOUR * len(curves)]
    moves = np.hstack([own, np.zeros((len(own), bends.shape[1]))])
    mean, covariance = process.predict(moves, return_cov=True)
    return _Normal(mean=prior.mean[: len(curves)] + mean.reshape(-1, _FOUR), root=_root(covariance))


def _prior(curves: Sequence[_Curve]) -> _Normal:
    covariance = np.zeros((len(curves), _FOUR, len(curves), _FOUR))
    for part in PARTS:
        same = _same([part.label(*curve) for curve in curves])
        for number, sd in enumerate(part.sd):
            covariance[:, number, :, number] += sd**2 * same
    size = _FOUR * len(curves)
    return _Normal(mean=np.tile(MEAN, (len(curves), 1)), root=_root(covariance.reshape(size, size)))


def _bend_covariance(sited: Sequence[_Sited]) -> Array:
    doublings = np.log2([each.batch_size for _, each in sited])
    apart = (doublings[:, None] - doublings[None, :]) / BEND_DOUBLINGS
    covariance = np.zeros_like(apart)
    for bend in BENDS:
        labels = [bend.label(model, each.kind, each.threads) for model, each in sited]
        covariance += bend.sd**2 * _same(labels)
    covariance *= np.exp(-0.5 * apart**2)
    return covariance


def _curves(sited: Sequence[_Sited]) -> list[_Curve]:
    return list(dict.fromkeys((model, each.kind) for model, each in sited))


def _points(sited: Sequence[_Sited], curves: Sequence[_Curve]) -> _Points:
    index = {curve: position for position, curve in enumerate(curves)}
    return _Points(
        curve=np.array([index[model, each.kind] for model, each in sited], dtype=np.int64),
        log_threads=np.log([each.threads for _, each in sited]),
        log_batch=np.log([each.batch_size for _, each in sited]),
    )


def _same(labels: Sequence[Hashable]) -> Array:
    """1 where two have the same label, else 0: ``(labels, labels)``."""
    numbered = {label: index for index, label in enumerate(dict.fromkeys(labels))}
    codes = np.array([numbered[label] for label in labels])
    same: Array = (codes[:, None] == codes[None, :]).astype(np.float64)
    return same


def _root(covariance: Array) -> Array:
    """R with ``R @ R.T`` the covariance, directions without variance left out."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > 1e-10 * max(values[-1], 1e-300)
    root: Array = vectors[:, kept] * np.sqrt(values[kept])
    return root
