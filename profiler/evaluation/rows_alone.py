"""Whether a model answers a row as it does alone, whatever other rows share its batch.

Rows of different clients share batches: none may see or change another's. What one row does to the
others may show only where it is far from them, or where they are many, so the rows that are tried
stand before and behind those of the file whose inputs are the largest and the smallest.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from profiler.evaluation.accuracy import BATCH, outputs_of
from variants.errors import InvalidArtifact, RuntimeFailed
from workers.runtimes.protocol import Runtime, Tensor

ALONE = 8
"""Rows that are answered one by one, to compare."""
BESIDE = 8
"""Rows that stand between them where they are answered together."""
ALONE_SHARE = 0.05
"""How much the other rows of a batch may change an answer, as a share of how far answers of
different rows are apart. Models that scale what they quantise by the whole batch change theirs a
little; those that mix rows, a lot."""
ROUNDING = 1e-3
"""How much they may in any case, as a share of the largest number: a hundred times what rounding
does in float32, and about what it does in float16."""
FAR, LARGEST = 1_000.0, 1e30
"""A far row is so many times as far from 0 as any row of the file, and this far at most."""


def check_alone(
    runtime: Runtime, rows: Sequence[Tensor], names: Sequence[str], batch_size: int = BATCH
) -> None:
    """Refuse a model whose answer to a row depends on the rows that share its batch.

    Args:
        runtime: loaded.
        rows: as for ``answers``, each ``(rows, *shape)``.
        names: of the outputs, in none of which another row may be seen.

    Raises:
        InvalidArtifact: a row on its own is answered otherwise.
        RuntimeFailed: the runtime failed.
    """
    tried, beside = _chosen(rows)
    half = len(tried) // 2
    both = [*tried[:half], *beside, *tried[half:]]
    together = outputs_of(runtime, _take(rows, both), None, batch_size, first=len(both))
    few = _take(rows, tried)
    alone = outputs_of(runtime, few, None, 1)
    for at, name in enumerate(names):
        allowed = _allowed(together[at], scored=at == 0)
        beside_others = np.concatenate([together[at][:half], together[at][half + len(beside) :]])
        differences = _differences(alone[at], beside_others, scored=at == 0)
        worst = int(differences.argmax())
        if differences[worst] <= allowed:
            continue
        once_more = outputs_of(runtime, few, None, 1)[at]
        again = _differences(once_more, alone[at], scored=at == 0)
        of = "" if len(names) == 1 else f" in output {name!r}"
        advice = "; --keep-outputs leaves it out" if at else ""
        if again.max() > allowed:
            raise InvalidArtifact(
                f"the model answers the same row with other numbers each time{of}, by up to "
                f"{again.max():.3g}: an answer may depend on nothing but its row{advice}"
            )
        raise InvalidArtifact(
            f"the model's answer to a row depends on the other rows in a batch{of}: alone, "
            f"evaluation row {tried[worst]} is answered with numbers that differ by up to "
            f"{differences[worst]:.3g}{advice}"
        )


def moved_by_far(
    runtime: Runtime, rows: Sequence[Tensor], names: Sequence[str], batch_size: int = BATCH
) -> str:
    """A clause where a row that is far from all rows of the file changes their answers beside it.

    It is no reason to refuse a model: what such a row is nobody says. But models that were
    quantised dynamically scale by the largest number of a batch, which any client may send.
    """
    if batch_size < 2 or not any(tensor.dtype.kind == "f" for tensor in rows):
        return ""
    few = _take(rows, _chosen(rows)[0][: batch_size - 1])
    try:
        before = runtime.run([np.ascontiguousarray(tensor) for tensor in few])
        beside = runtime.run([np.concatenate([tensor, _far(tensor)]) for tensor in few])
    except (RuntimeFailed, MemoryError):  # the far row is nothing that it takes
        return ""
    for at, name in enumerate(names):
        one, other = (each[at][: len(few[0])] for each in (before, beside))
        with np.errstate(invalid="ignore"):
            found = np.nan_to_num(_differences(one, other, scored=at == 0), nan=np.inf).max()
        if found <= _allowed(one, scored=at == 0):
            continue
        of = "" if len(names) == 1 else f" in output {name!r}"
        return (
            f"a row that is far from all others changes the answers of those beside it{of}, by up"
            f" to {found:.3g}, and rows of different clients share batches; if it was quantised"
            " dynamically, register it as it was before, and variants in 8 bits are made of it"
        )
    return ""


def _far(tensor: Tensor) -> Tensor:
    """A row that is far from those of the tensor, if they are of floating-point numbers."""
    if tensor.dtype.kind != "f":
        return tensor[:1]
    far = min(LARGEST, FAR * max(1.0, float(np.abs(tensor).max(initial=0.0))))
    return np.full_like(tensor[:1], far)


def _chosen(rows: Sequence[Tensor]) -> tuple[list[int], list[int]]:
    """The places of rows that are tried, evenly spread, and of others, extreme ones first."""
    count = len(rows[0])
    tried = [*dict.fromkeys(np.linspace(0, count - 1, ALONE).astype(int).tolist())]
    others = (at for at in (*_extremes(rows), *range(count)) if at not in tried)
    return tried, [*dict.fromkeys(others)][:BESIDE]


def _extremes(rows: Sequence[Tensor]) -> Iterator[int]:
    """The places of the rows with the largest and the smallest number, and sum, of each input."""
    for measured in (_largest, _smallest, _sum):
        for tensor in rows:
            found = measured(tensor.reshape(len(tensor), -1))
            yield int(found.argmax())
            yield int(found.argmin())


def _largest(rows: Tensor) -> Tensor:
    return np.asarray(rows.max(axis=1))


def _smallest(rows: Tensor) -> Tensor:
    return np.asarray(rows.min(axis=1))


def _sum(rows: Tensor) -> Tensor:
    return np.asarray(rows.sum(axis=1, dtype=np.float64))


def _take(rows: Sequence[Tensor], places: Sequence[int]) -> list[Tensor]:
    return [tensor[places] for tensor in rows]


def _allowed(answers: Tensor, *, scored: bool) -> float:
    """By how much an answer beside others may differ from the one alone; whole numbers that are not
    ``scored`` by nothing."""
    if answers.dtype.kind != "f" and not scored:
        return 0.0
    each = answers.reshape(len(answers), -1).astype(np.float64)
    spread = (each.max(axis=0) - each.min(axis=0)).max(initial=0.0)
    return float(max(ALONE_SHARE * spread, ROUNDING * np.abs(each).max(initial=0.0)))


def _differences(alone: Tensor, together: Tensor, *, scored: bool) -> Tensor:
    """By how much an output differs in each row ``(rows,)``.

    Whole numbers are often the place of a largest one, and of two that are nearly as large rounding
    decides: they have to differ in half of the rows, and there in more than a few places. But not
    in the output that is ``scored``: what is measured of it is promised to every row.
    """
    one, other = (each.reshape(len(each), -1).astype(np.float64) for each in (alone, together))
    found: Tensor = np.abs(one - other).max(axis=1, initial=0.0)
    if scored or alone.dtype.kind == "f":
        return found
    others = np.count_nonzero(one != other, axis=1) > ALONE_SHARE * one.shape[1]
    if 2 * np.count_nonzero(others) < len(others):
        return np.zeros(len(found))
    return found
