"""Tuning a graph on the rows that its model was trained on. Imports torch."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import cos, pi, prod
from typing import Any

import torch
from numpy.typing import NDArray
from torch.nn import functional

from variants.builders.activations import first_line, row_count
from variants.builders.compression.graph import multiply_adds, shapes
from variants.builders.compression.scores import (
    RATE,
    TINY,
    Targets,
    output_name,
    place_of_logits,
)
from variants.builders.compression.trainable import TrainableGraph
from variants.builders.protocol import Rows
from variants.errors import VariantNotBuilt
from variants.metrics.metric import CLASSES, Judged, MetricKind

Arrays = NDArray[Any]
Tensor = Any

LIMIT_S = 120.0
"""Longest time in seconds that training takes for one variant."""
WARM_UP = 0.1
"""Share of the time limit in which the clock does not shorten the training."""
MEMORY_BYTES = 512 * 2**20
"""Most memory for the values between the layers of one batch."""
BATCH_ROWS = 64
ALONE_WORK = 1e9
"""Multiply-adds of a batch, forwards and backwards, below which one thread does them."""


FineTune = Callable[[TrainableGraph, Rows, Targets], None]
"""Changes the graph's weights; called after each change to its structure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """AdamW with a learning rate that falls as a cosine, in batches drawn without replacement.

    The loss is cross entropy with the labels; where there is a teacher, a part of it is instead the
    divergence from the teacher's scores, both softened by ``temperature`` (Hinton, Vinyals, Dean,
    *Distilling the Knowledge in a Neural Network*, 2015, section 2).

    What is no classifier is trained towards the targets and, for the same part, the teacher's
    outputs: numbers by the squared error in units of their variance, vectors by the cosine of the
    angle between them.
    """

    epochs: int = 8
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    temperature: float = 3.0
    taught_share: float = 0.5
    """Share of the loss that comes from the teacher's answers, where there is a teacher."""
    limit_s: float = LIMIT_S
    seed: int = 0
    clock: Callable[[], float] = time.monotonic

    def __call__(self, graph: TrainableGraph, rows: Rows, targets: Targets) -> None:
        """Train all weights of ``graph`` in place.

        Raises:
            VariantNotBuilt: the graph has no weights, or scores nothing.
        """
        parameters = list(graph.parameters())
        if not parameters:
            raise VariantNotBuilt("the model has no weights that can be trained")
        begun, scores = self.clock(), Scores(graph, targets.judged)
        optimiser = torch.optim.AdamW(
            parameters, lr=self.learning_rate, weight_decay=self.weight_decay
        )
        batch, steps = self.plan(graph, row_count(rows))
        with repeatable(threads=self.threads(graph, batch)):
            for step, chosen in enumerate(_draws(row_count(rows), batch, steps, self.seed)):
                over = self.progress(step, steps, self.clock() - begun)
                if over >= 1:
                    return
                for group in optimiser.param_groups:
                    group["lr"] = self.learning_rate * (1 + cos(pi * over)) / 2
                logits = scores(
                    {name: torch.from_numpy(rows[name][chosen.numpy()]) for name in graph.inputs}
                )
                optimiser.zero_grad()
                try:
                    self.loss(logits, targets, chosen.numpy()).backward()
                except RuntimeError as error:  # no gradient of an operator, no memory
                    raise VariantNotBuilt(f"cannot be trained: {first_line(error)}") from error
                torch.nn.utils.clip_grad_norm_(parameters, 1.0)
                optimiser.step()

    def plan(self, graph: TrainableGraph, rows: int) -> tuple[int, int]:
        """Rows in a batch and number of batches, from what memory and time allow."""
        known = shapes(graph.model)
        work = 3 * sum(multiply_adds(graph.model, known).values())  # backwards is twice forwards
        held = 4 * sum(prod(shape) for name, shape in known.two.items() if known.batch_axes(name))
        batch = max(1, min(BATCH_ROWS, rows, 2 * MEMORY_BYTES // max(1, held)))
        affordable = int(self.limit_s * RATE / max(1, work * batch))
        return batch, max(1, min(self.epochs * -(-rows // batch), affordable))

    def progress(self, step: int, steps: int, elapsed_s: float) -> float:
        """How much is over: by steps, or by the clock once that is ahead of the plan.

        So the learning rate has fallen when time is up. What runs as fast as planned never depends
        on the clock; the first tenth of the time, in which libraries warm up, tells nothing.
        """
        late = elapsed_s / self.limit_s
        return step / steps if late < WARM_UP else max(step / steps, late)

    def threads(self, graph: TrainableGraph, batch: int) -> int | None:
        """How many threads compute a batch; None leaves it to torch.

        Several threads wait for each other at every operator, and where other processes compute,
        each time until all have had their turn: small batches are done sooner by one.
        """
        work = 3 * batch * sum(multiply_adds(graph.model).values())
        return 1 if work < ALONE_WORK else None

    def loss(self, logits: Tensor, targets: Targets, chosen: Arrays) -> Tensor:
        """The loss of one batch of logits ``(batch, classes)``, or of outputs ``(batch, *shape)``;
        ``chosen`` ``(batch,)`` are the places of its rows among the targets."""
        if not targets.judged.metric.classifies:
            return self._apart(logits, targets, chosen)
        assert targets.labels is not None
        labels = torch.as_tensor(targets.labels[chosen])
        right = functional.cross_entropy(logits, labels)
        if targets.taught is None:
            return right
        soft = functional.log_softmax(torch.as_tensor(targets.taught[chosen]) / self.temperature, 1)
        own = functional.log_softmax(logits / self.temperature, 1)
        away = functional.kl_div(own, soft, log_target=True, reduction="batchmean")
        # Gradients of softened scores shrink with the square of the temperature.
        away = away * self.temperature**2
        return self.taught_share * away + (1 - self.taught_share) * right

    def _apart(self, found: Tensor, targets: Targets, chosen: Arrays) -> Tensor:
        """How far outputs ``(batch, *shape)`` are from the targets and from what is taught."""
        parts = []
        both = targets.labels is not None and targets.taught is not None
        for wanted, share in (
            (targets.labels, 1 - self.taught_share),
            (targets.taught, self.taught_share),
        ):
            if wanted is not None:
                away = distance(found, torch.as_tensor(wanted[chosen]), targets)
                parts.append(share * away if both else away)
        return torch.stack(parts).sum()


def distance(found: Tensor, wanted: Tensor, targets: Targets) -> Tensor:
    """How far outputs ``(batch, *shape)`` are from those that are wanted, by what the metric
    compares: directions, or numbers in units of their deviation."""
    if targets.judged.metric.kind in (MetricKind.COSINE, MetricKind.NEAREST):
        count = len(found)
        return (
            1
            - functional.cosine_similarity(
                found.reshape(count, -1), wanted.reshape(count, -1)
            ).mean()
        )
    assert targets.deviation is not None
    return (((found - wanted) / torch.as_tensor(targets.deviation)) ** 2).mean()


class Scores:
    """The logits of a graph's batches, ``(rows, classes)``; of what is no classifier the output
    that is judged, ``(rows, *shape)``."""

    def __init__(self, graph: TrainableGraph, judged: Judged = CLASSES) -> None:
        self.graph = graph
        self.name, self._logarithm = (
            place_of_logits(graph.model)
            if judged.metric.classifies
            else (output_name(graph.model, judged), False)
        )

    def __call__(self, rows: Any) -> Tensor:
        found = self.graph(rows, (self.name,))[self.name].float()
        return found.clamp_min(TINY).log() if self._logarithm else found


@contextmanager
def repeatable(*, threads: int | None) -> Iterator[None]:
    """Have torch compute in ways that give the same sums every time, on so many threads."""
    before, many = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(threads or many)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        torch.set_num_threads(many)


def _draws(rows: int, batch: int, steps: int, seed: int) -> Iterator[Tensor]:
    """Places of rows: every row once before any comes again."""
    random = torch.Generator().manual_seed(seed)
    left = torch.empty(0, dtype=torch.int64)
    for _ in range(steps):
        if len(left) < batch:
            left = torch.cat([left, torch.randperm(rows, generator=random)])
        yield left[:batch]
        left = left[batch:]
