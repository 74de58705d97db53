"""Collected: the answer of a query that is kept as arrays, for whoever puts several together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from controlplane.gateway.query.parsing import ParsedQuery
from controlplane.gateway.query.replies import ReplyMetadata, V2Request
from variants.types import Task, TextInput
from workers.runtimes.protocol import Tensor

Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected(V2Request):
    """A form of answers that writes nothing, and keeps what was answered."""

    tokens: Mapping[str | None, int]
    """Of all texts of the query, by each way of its task's versions to read them; None stands for
    the task's own."""
    kept: list[tuple[Vectors, ReplyMetadata]] = field(default_factory=list)
    """The vectors, of shape (rows, numbers), and how they were made; empty before the answer."""

    @classmethod
    def of(cls, parsed: ParsedQuery) -> "Collected":
        """For a query of texts that were read."""
        ways: dict[str | None, list[Tensor]] = {None: parsed.tensors}
        if parsed.read_as is not None:
            ways = {way: rows.tensors for way, rows in parsed.read_as.items()}
        tokens = {way: tokens_in(parsed.task, tensors) for way, tensors in ways.items()}
        return cls(id=None, outputs=None, binary=frozenset(), tokens=tokens)

    def encode(
        self, task: Task, outputs: Sequence[Tensor], metadata: ReplyMetadata
    ) -> tuple[bytes, bytes]:
        # A copy: what came over a connection may be written over by what comes next.
        self.kept[:] = [(np.array(outputs[0], np.float32), metadata)]
        return b"", b""


def tokens_in(task: Task, tensors: Sequence[Tensor]) -> int:
    """How many tokens the rows of texts have, what stands around the texts included.

    Args:
        tensors: in the order of the task's inputs.
    """
    text = task.text
    assert isinstance(text, TextInput)
    named = dict(zip((spec.name for spec in task.inputs), tensors, strict=True))
    if text.mask is not None:
        return int(named[text.mask].sum())
    return int((named[text.ids] != text.pad).sum())
