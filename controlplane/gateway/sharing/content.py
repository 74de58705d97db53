"""When two queries may have the same answer: the same inputs, and a variant that suits both."""

from collections.abc import Sequence
from hashlib import sha256

import numpy as np

from planner.selection.eligibility import answers
from planner.types import Candidate, Query
from workers.runtimes.protocol import Tensor


def content_key(tensors: Sequence[Tensor]) -> bytes:
    """A hash of what a query's inputs are: their types, shapes and bytes, in the task's order.

    Nobody can make two that differ and have the same one (SHA-256), or one client could choose
    what another is told. Equal numbers in other bytes, as 0 and -0, are other inputs.
    """
    digest = sha256()
    for tensor in tensors:
        # Of a fixed number of fields, each ended, so that no two lists of inputs look the same.
        digest.update(f"{tensor.dtype.str}{tensor.shape};".encode())
        digest.update(np.ascontiguousarray(tensor).data.cast("B"))
    return digest.digest()


def may_get(query: Query, candidate: Candidate) -> bool:
    """Whether the answer of a variant is one that this query may get.

    An answer that is there already takes no time, energy or money, so that neither the deadline nor
    the ceiling on cost stands in its way.
    """
    if query.version is not None:
        if candidate.model_version != query.version:
            return False
        if query.variant not in (None, candidate.variant):
            return False
    elif not answers(candidate, query.variant):
        return False
    return query.accuracy is None or candidate.accuracy >= query.accuracy
