"""The range of values that 8 bits are to cover, for every tensor inside a model.

Memory is bounded whatever the model: rows run a few at a time, and a tensor leaves behind its
lowest and highest value and, where a method asks for it, one histogram of fixed size. That takes a
second run over the rows, because a histogram's edges have to be known before it is filled.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from variants.builders.activations import Tensors, observe, row_count, spread
from variants.builders.protocol import Rows
from variants.errors import VariantNotBuilt

Range = tuple[float, float]
"""Lowest and highest value; zero lies between, because it has to be represented exactly."""
Counts = NDArray[np.int64]

ROWS = 128
"""Most rows that are run, evenly spread over those given: ranges hardly grow after that."""
VALUES = 2**27
"""Most values that are sorted into histograms, unless ``FEWEST_ROWS`` have more."""
FEWEST_ROWS = 16
BINS = 4096
LEVELS = 256
PERCENTILE = 99.99
"""Share of a tensor's values that stay inside its range."""
CANDIDATES = 128
UNSEEN = 1e-6
"""Probability of what quantising makes impossible: without it, one such value costs infinity."""


class Calibration(StrEnum):
    """How a range is found."""

    MIN_MAX = "minmax"
    """All values that occurred: nothing is cut, and an outlier coarsens everything else."""
    ENTROPY = "entropy"
    """The range that loses least information (Migacz, *8-bit inference with TensorRT*, GTC 2017).
    """
    PERCENTILE = "percentile"
    """All but the outermost ``100 - PERCENTILE`` percent of the values, half of them at each end.
    """


def ranges(model: Any, tensors: Sequence[str], rows: Rows, how: Calibration) -> dict[str, Range]:
    """The range of each named tensor of a ``ModelProto`` on the calibration rows.

    Raises:
        VariantNotBuilt: there are no rows, the model does not run on them, or a tensor is not
            finite.
    """
    if not row_count(rows):
        raise VariantNotBuilt("quantising needs calibration rows, and there are none")
    chosen, _ = spread(rows, ROWS)
    batches = iter(observe(model, tensors, chosen))
    first = next(batches)
    found = _extremes([first])
    if how is not Calibration.MIN_MAX:
        values = sum(array.size for array in first.values())
        chosen, _ = spread(chosen, max(FEWEST_ROWS, VALUES // max(1, values)))
        batches = iter(observe(model, tensors, chosen))
    found = _extremes(batches, found)
    if how is Calibration.MIN_MAX:
        return found
    cut = by_entropy if how is Calibration.ENTROPY else by_percentile
    counts = _histograms(observe(model, tensors, chosen), found)
    return {name: cut(counts[name], *found[name]) for name in found}


def extremes(model: Any, tensors: Sequence[str], rows: Rows) -> dict[str, Range]:
    """The lowest and highest finite value of each named tensor of a ``ModelProto``, zero between
    them. Infinite ones are left out: the masks of transformers have them, and so has fp16.

    Raises:
        VariantNotBuilt: the model does not run on the rows, or a tensor is not a number.
    """
    return _extremes(observe(model, tensors, rows), infinite=True)


def _extremes(
    batches: Iterable[Tensors],
    known: Mapping[str, Range] | None = None,
    *,
    infinite: bool = False,
) -> dict[str, Range]:
    """``infinite`` says whether values may be."""
    found = dict(known or {})
    for batch in batches:
        for name, array in batch.items():
            low, high = found.get(name, (0.0, 0.0))
            if array.size:
                least, most = float(array.min()), float(array.max())
                if infinite and np.isinf((least, most)).any():
                    finite = array[np.isfinite(array)]
                    least = float(finite.min(initial=0.0))
                    most = float(finite.max(initial=0.0))
                if not np.isfinite((least, most)).all():
                    raise VariantNotBuilt(f"{name!r} is not finite on the calibration rows")
                low, high = min(low, least), max(high, most)
            found[name] = (low, high)
    return found


def _histograms(batches: Iterable[Tensors], limits: Mapping[str, Range]) -> dict[str, Counts]:
    """How many values fall into each of ``BINS`` equal parts of a tensor's range."""
    found = {name: np.zeros(BINS, dtype=np.int64) for name in limits}
    for batch in batches:
        for name, array in batch.items():
            low, high = limits[name]
            if high <= low:
                continue
            place = (array.ravel() - np.float32(low)) * np.float32(BINS / (high - low))
            places = place.clip(0, BINS - 1).astype(np.int32)
            found[name] += np.bincount(places, minlength=BINS)
    return found


def by_percentile(counts: Counts, low: float, high: float) -> Range:
    """The range without the outermost values, from a histogram over ``[low, high]``."""
    total = counts.sum()
    if not total:
        return low, high
    below = np.concatenate(([0.0], np.cumsum(counts) / total))
    edges = np.linspace(low, high, len(counts) + 1)
    cut = (100 - PERCENTILE) / 200
    # The last edge before more than the cut lies below, and the first one after: never inside.
    first = int(np.searchsorted(below, cut, side="right")) - 1
    last = int(np.searchsorted(below, 1 - cut, side="left"))
    return min(0.0, float(edges[first])), max(0.0, float(edges[min(last, len(counts))]))


def by_entropy(counts: Counts, low: float, high: float) -> Range:
    """The range whose 256 levels tell most of a histogram over ``[low, high]``.

    Every candidate cuts both ends at the same distance from zero. What it cuts is counted at its
    ends; the distribution that 256 levels can show is compared with that by the divergence of
    Kullback and Leibler.
    """
    if not counts.any():
        return low, high
    edges = np.linspace(low, high, len(counts) + 1)
    counts = _without_spike(counts, edges)
    reach = max(-low, high)
    best: tuple[float, Range] | None = None
    for limit in np.geomspace(reach, reach * LEVELS / len(counts), CANDIDATES):
        first = int(np.searchsorted(edges, max(low, -limit), side="right")) - 1
        last = int(np.searchsorted(edges, min(high, limit), side="left"))
        if last - first < LEVELS:
            break
        lost = _divergence(counts, first, last)
        if best is None or lost < best[0]:
            best = lost, (min(0.0, float(edges[first])), max(0.0, float(edges[last])))
    return best[1] if best else (low, high)


def _without_spike(counts: Counts, edges: NDArray[np.float64]) -> Counts:
    """The same, its bin at zero as full as its fuller neighbour.

    Half of what follows a ReLU is exactly zero, and zero is kept exactly in any range. Left in, it
    would be spread over a whole level of every candidate but the narrowest, which would win.
    """
    middle = min(len(counts) - 1, int(np.searchsorted(edges, 0.0, side="right")) - 1)
    around = [counts[i] for i in (middle - 1, middle + 1) if 0 <= i < len(counts)]
    evened = counts.copy()
    evened[middle] = min(evened[middle], max(around))
    return evened


def _divergence(counts: Counts, first: int, last: int) -> float:
    inside = counts[first:last].astype(np.float64)
    true = inside.copy()
    true[0] += counts[:first].sum()
    true[-1] += counts[last:].sum()
    if not inside.any():
        return float("inf")
    level = np.arange(len(inside)) * LEVELS // len(inside)
    occupied = np.bincount(level, weights=true > 0, minlength=LEVELS)
    level_share = np.bincount(level, weights=inside, minlength=LEVELS) / np.maximum(occupied, 1)
    shown = np.where(true > 0, level_share[level], 0.0)
    true /= true.sum()
    shown = np.maximum(shown / shown.sum(), UNSEEN)
    seen = true > 0
    return float(np.sum(true[seen] * np.log(true[seen] / shown[seen])))
