"""Which channels matter least for the loss. Imports torch."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from variants.builders.activations import spread
from variants.builders.compression.channels import Channels, Layer, Mask, Units
from variants.builders.compression.scores import Targets
from variants.builders.compression.trainable import TrainableGraph
from variants.builders.compression.training import Scores, Tuning, repeatable
from variants.builders.protocol import Rows

ROWS = 512
"""Most rows that importance is computed from, evenly spread over those given."""

Importance = NDArray[np.float64]


def importance(
    graph: TrainableGraph, channels: Channels, rows: Rows, targets: Targets, *, limit_s: float
) -> Importance:
    """By unit: how much the loss changes to first order if it leaves, squared, mean over batches.

    With a gate z = 1 on a channel, dE/dz is the sum of gradient times weight over all that makes
    the channel (Molchanov and others, *Importance Estimation for Neural Network Pruning*, CVPR
    2019, equations 8 and 9). Squares are added over the layers that make a unit together.
    """
    tuning = Tuning(epochs=1, limit_s=limit_s)
    rows, chosen = spread(rows, ROWS)
    few = targets.known(chosen)
    batch, steps = tuning.plan(graph, len(chosen))
    scores = Scores(graph, targets.judged)
    found = np.zeros(channels.count)
    with repeatable(threads=tuning.threads(graph, batch)):
        for step in range(steps):
            places = np.arange(len(chosen))[step::steps][:batch]
            graph.zero_grad()
            logits = scores({name: torch.from_numpy(rows[name][places]) for name in graph.inputs})
            tuning.loss(logits, few, places).backward()
            found += _gates(graph, channels)
    graph.zero_grad()
    return found / steps


def _gates(graph: TrainableGraph, channels: Channels) -> Importance:
    """Squared gradients of the gates, from the gradients that the weights hold now."""
    gates: dict[str, tuple[Any, Any]] = {}
    for cut in channels.cuts:
        if cut.maker is None:
            continue
        weight = graph.parameter(cut.name)
        if weight.grad is None:  # makes what the scores do not need
            continue
        product = (weight.grad * weight.detach()).double().movedim(cut.axis, 0)
        product = product.reshape(len(product), -1).sum(1)
        _, before = gates.get(cut.maker, (None, 0.0))
        gates[cut.maker] = (cut.units, product.numpy() + before)
    found = np.zeros(channels.count)
    for units, gate in gates.values():
        np.add.at(found, units, gate**2)
    return found


def usual_block(width: int) -> int:
    """Channels that leave at a time, from a group of ``width``.

    Kernels compute 8 or 16 at once, and one channel less saves nothing.
    """
    return 16 if width >= 32 else 8 if width >= 16 else 4 if width >= 8 else 1


def lightest(
    channels: Channels,
    important: Importance,
    *,
    work: float,
    least: float,
    block_of: Callable[[int], int] = usual_block,
) -> Mask:
    """Units to keep so that about ``work`` multiply-adds a row are left, or what is nearest.

    Whole blocks leave, the least important for the work that they save first; ``block_of`` says how
    large one is in a group of so many. Each group keeps the share ``least``.
    """
    kept = np.ones(channels.count, np.bool_)
    queues = [group[np.argsort(important[group], kind="stable")] for group in channels.groups]
    sizes = [block_of(len(queue)) for queue in queues]
    touched = [channels.touched(queue) for queue in queues]
    now = channels.work(kept)
    while now > work:
        best: tuple[float, int, float] | None = None
        for place, queue in enumerate(queues):
            block = _next(queue, sizes[place], least * len(channels.groups[place]))
            saved = _saved(touched[place], kept, block)
            if saved > 0:
                price = float(important[block].sum()) / saved
                best = min(best or (price, place, saved), (price, place, saved))
        if best is None or work - (now - best[2]) > now - work:  # farther off than before
            break
        _, place, saved = best
        block = _next(queues[place], sizes[place], 0)
        kept[block] = False
        queues[place] = queues[place][len(block) :]
        now -= saved
    return kept


def _next(queue: Units, size: int, least: float) -> Units:
    """What leaves a group next: first down to whole blocks; one block at least is kept."""
    block = queue[: len(queue) % size or size]
    return block if len(queue) - len(block) >= max(size, least) else queue[:0]


def _saved(layers: Sequence[Layer], kept: Mask, block: Units) -> float:
    """Multiply-adds that go with a block."""
    after = kept.copy()
    after[block] = False
    return sum(layer.left(kept) - layer.left(after) for layer in layers)
