"""The latency of every configuration of a model on one device kind, measured or predicted."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import exp, log

import numpy as np
from numpy.typing import NDArray

from profiler.sampling.costmodel import Prediction
from profiler.sampling.space import Configuration
from variants.types import LatencyPoint

Array = NDArray[np.float64]

TAIL_WEIGHT = 2.0
"""Weight of the ratio of all kinds against a kind's own, in measurements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySurface:
    """What is known of the space at one moment. Configurations that failed are not in it."""

    at: Mapping[Configuration, LatencyPoint]
    """A point's ``error`` is 0 if it was measured."""

    def measured(self, configuration: Configuration) -> bool:
        return not self.at[configuration].error

    def points(self, kind: str, threads: int) -> tuple[LatencyPoint, ...]:
        """A profile's points, ascending by batch size; none if the kind failed."""
        chosen = (
            point
            for configuration, point in self.at.items()
            if (configuration.kind, configuration.threads) == (kind, threads)
        )
        return tuple(sorted(chosen, key=lambda point: point.batch_size))

    def best(self, slo_ms: float) -> Configuration | None:
        """The measured configuration with the highest throughput whose p95 is within the SLO."""
        fitting = {
            throughput(point): configuration
            for configuration, point in self.at.items()
            if not point.error and point.p95_ms <= slo_ms
        }
        return fitting[max(fitting)] if fitting else None


def throughput(point: LatencyPoint) -> float:
    """Rows per ms."""
    return point.batch_size / point.p50_ms


class Tails:
    """How far p95 and p99 lie above p50: a kind's own ratio, drawn to that of all kinds."""

    def __init__(self, measured: Mapping[Configuration, LatencyPoint]) -> None:
        self._of_kind: dict[str, list[tuple[float, float]]] = {}
        for configuration, point in measured.items():
            ratios = (log(point.p95_ms / point.p50_ms), log(point.p99_ms / point.p50_ms))
            self._of_kind.setdefault(configuration.kind, []).append(ratios)
        every = [ratios for own in self._of_kind.values() for ratios in own]
        self._all: Array = np.median(every, axis=0) if every else np.zeros(2)

    def ratios(self, kind: str) -> tuple[float, float]:
        """Logarithms of p95 / p50 and p99 / p50."""
        own = self._of_kind.get(kind, [])
        total = TAIL_WEIGHT * self._all + (np.sum(own, axis=0) if own else 0.0)
        p95, p99 = total / (len(own) + TAIL_WEIGHT)
        return float(p95), float(p99)


def surface(
    prediction: Prediction,
    measured: Mapping[Configuration, LatencyPoint],
    left_out: Iterable[Configuration] = (),
) -> LatencySurface:
    """The surface of measured points as they are and of all others as predicted, without
    ``left_out``."""
    tails, out = Tails(measured), set(left_out)
    at = {}
    for configuration, mean, error in zip(
        prediction.configurations, prediction.mean, prediction.error, strict=True
    ):
        if configuration in out:
            continue
        if configuration in measured:
            at[configuration] = measured[configuration]
            continue
        p95, p99 = tails.ratios(configuration.kind)
        at[configuration] = LatencyPoint(
            batch_size=configuration.batch_size,
            p50_ms=exp(mean),
            p95_ms=exp(mean + p95),
            p99_ms=exp(mean + p99),
            error=float(error),
        )
    return LatencySurface(at=at)
