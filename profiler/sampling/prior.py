"""What is expected of a model's latencies before anything was measured of it.

Of one kind, a batch of ``b`` rows on ``t`` threads takes about ``o * t**c + w * b * t**-g``: an
overhead for each call, which grows with threads that have to be woken, and work for each row, which
they share. Four numbers make a curve, and the curves of a model resemble each other: kinds of one
runtime share most of its overhead, kinds of one precision some of their speed. So the logarithms of
overhead and work, and the exponents, are normal with a part for the model, for the runtime, the
precision and the arithmetic, and parts for these within the model (a hierarchical model). What such
curves cannot say (a cache that overflows, a batch size with a kernel of its own) is a Gaussian
process over the logarithm of the batch size, shared in the same manner.

Parts that do not belong to one model are the same in all of them: so models that were measured
before on the same machine tell what to expect of the next.

The numbers below were found by maximum likelihood on complete grids; docs/decisions/0010 says
which, and how little depends on them.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profiler.sampling.space import Configuration, arithmetic_of, precision_of, runtime_of

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Sited = tuple[str, Configuration]
"""A configuration of a model."""
Curve = tuple[str, str]
"""A model and a kind."""
History = Mapping[str, Mapping[Configuration, float]]
"""What was measured of models, in ms, by the model's name."""

NUMBERS = 4
"""The numbers of a curve: log overhead (ms), log work (ms a row), gain ``g`` and cost ``c``."""
MEAN = (-2.4, -3.2, 0.65, 0.27)
"""Means of the four numbers. The first two hardly count: a model's own part is far wider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The part of a curve's four numbers that all curves with the same label have in common."""

    label: Callable[[str, str], Hashable]
    """The label of a model and a kind."""
    sd: tuple[float, float, float, float]


PARTS: tuple[Part, ...] = (
    Part(label=lambda model, kind: runtime_of(kind), sd=(0.9, 0.42, 0.15, 0.18)),
    Part(label=lambda model, kind: precision_of(kind), sd=(0.1, 0.4, 0.08, 0.07)),
    Part(label=lambda model, kind: arithmetic_of(kind), sd=(0.16, 0.37, 0.07, 0.05)),
    Part(label=lambda model, kind: model, sd=(2.0, 4.0, 0.28, 0.22)),
    Part(label=lambda model, kind: (model, runtime_of(kind)), sd=(0.42, 0.11, 0.15, 0.33)),
    Part(label=lambda model, kind: (model, precision_of(kind)), sd=(0.06, 0.15, 0.1, 0.07)),
    Part(label=lambda model, kind: (model, arithmetic_of(kind)), sd=(0.06, 0.2, 0.07, 0.06)),
    Part(label=lambda model, kind: (model, kind), sd=(0.05, 0.05, 0.03, 0.03)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bend:
    """How all curves with the same label depart from the formula, along the batch size."""

    label: Callable[[str, str, int], Hashable]
    """The label of a model, a kind and a number of threads."""
    sd: float


BENDS: tuple[Bend, ...] = (
    Bend(label=lambda model, kind, threads: runtime_of(kind), sd=0.03),
    Bend(label=lambda model, kind, threads: (runtime_of(kind), threads), sd=0.02),
    Bend(label=lambda model, kind, threads: (arithmetic_of(kind), threads), sd=0.02),
    Bend(label=lambda model, kind, threads: model, sd=0.04),
    Bend(label=lambda model, kind, threads: (model, threads), sd=0.03),
    Bend(label=lambda model, kind, threads: (model, runtime_of(kind)), sd=0.05),
    Bend(label=lambda model, kind, threads: (model, runtime_of(kind), threads), sd=0.02),
    Bend(label=lambda model, kind, threads: (model, arithmetic_of(kind)), sd=0.125),
    Bend(label=lambda model, kind, threads: (model, arithmetic_of(kind), threads), sd=0.06),
)
BEND_DOUBLINGS = 5.0
"""Doublings of the batch size after which a bend is forgotten to a third. It may have corners
(Ornstein-Uhlenbeck): from one size to the next a library takes another kernel, or more threads."""

MOST_TAUGHT = 400
"""Points of a history that are looked at: with more, the first question takes seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Where points lie on which curve, and how far off it. All but ``bend_root`` are
    ``(points,)``."""

    curve: Indices
    """Row of ``Numbers`` of each point's curve."""
    log_threads: Array
    log_batch: Array
    bend: Array
    """Expected distance from the curve, in log milliseconds."""
    bend_root: Array
    """How the common directions move it, ``(points, directions)``."""

    def __getitem__(self, chosen: Indices) -> "Points":
        return Points(
            curve=self.curve[chosen],
            log_threads=self.log_threads[chosen],
            log_batch=self.log_batch[chosen],
            bend=self.bend[chosen],
            bend_root=self.bend_root[chosen],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The four numbers of each curve: ``mean + root @ z``, z standard normal in all directions."""

    mean: Array
    """``(curves, 4)``"""
    root: Array
    """``(curves, 4, directions)``"""


def thinned(history: History) -> list[Sited]:
    """Enough of a history: of each curve the ends first, and ``MOST_TAUGHT`` points at most."""
    sited = [(model, each) for model, seen in history.items() for each in seen]
    if len(sited) <= MOST_TAUGHT:
        return sited
    curves: dict[tuple[str, str, int], list[Sited]] = {}
    for model, each in sorted(sited):
        curves.setdefault((model, each.kind, each.threads), []).append((model, each))
    ranked: list[tuple[int, Sited]] = []
    for curve in curves.values():
        ranked += enumerate([curve[-1], curve[0], *curve[1:-1]][: len(curve)])
    ranked.sort(key=lambda one: one[0])
    return [one for _, one in ranked[:MOST_TAUGHT]]


def expected(sited: Sequence[Sited]) -> tuple[Numbers, Points]:
    """The prior of all curves that have points, in the order in which they come, and of all
    points."""
    curves = curves_of(sited)
    by_number = np.zeros((len(curves), NUMBERS, len(curves), NUMBERS))
    for part in PARTS:
        same = same_label([part.label(*curve) for curve in curves])
        for number, sd in enumerate(part.sd):
            by_number[:, number, :, number] += sd**2 * same
    size = NUMBERS * len(curves)
    root, bend_root = root_of(by_number.reshape(size, size)), root_of(_bend_covariance(sited))
    index = {curve: position for position, curve in enumerate(curves)}
    numbers = Numbers(
        mean=np.tile(MEAN, (len(curves), 1)),
        root=np.pad(root, ((0, 0), (0, bend_root.shape[1]))).reshape(len(curves), NUMBERS, -1),
    )
    points = Points(
        curve=np.array([index[model, each.kind] for model, each in sited], dtype=np.int64),
        log_threads=np.log([each.threads for _, each in sited]),
        log_batch=np.log([each.batch_size for _, each in sited]),
        bend=np.zeros(len(sited)),
        bend_root=np.pad(bend_root, ((0, 0), (root.shape[1], 0))),
    )
    return numbers, points


def _bend_covariance(sited: Sequence[Sited]) -> Array:
    """``(points, points)`` of the distances from the curves."""
    doublings = np.log2([each.batch_size for _, each in sited])
    apart = np.abs(doublings[:, None] - doublings[None, :])
    covariance: Array = np.zeros(apart.shape)
    for bend in BENDS:
        labels = [bend.label(model, each.kind, each.threads) for model, each in sited]
        covariance += bend.sd**2 * same_label(labels)
    covariance *= np.exp(-apart / BEND_DOUBLINGS)
    return covariance


def curves_of(sited: Sequence[Sited]) -> list[Curve]:
    return list(dict.fromkeys((model, each.kind) for model, each in sited))


def same_label(labels: Sequence[Hashable]) -> Array:
    """1 where two have the same label, else 0: ``(labels, labels)``."""
    numbered = {label: index for index, label in enumerate(dict.fromkeys(labels))}
    codes = np.array([numbered[label] for label in labels])
    same: Array = (codes[:, None] == codes[None, :]).astype(np.float64)
    return same


def root_of(covariance: Array) -> Array:
    """``(n, directions)`` R with ``R @ R.T`` the covariance ``(n, n)``; directions without variance
    are left out."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > 1e-10 * max(values[-1], 1e-300)
    root: Array = vectors[:, kept] * np.sqrt(values[kept])
    return root
