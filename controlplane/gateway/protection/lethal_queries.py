"""LethalQueries: contents of queries that were being run when their worker ended.

A query that ends its worker must not end the next one: it is not tried again elsewhere, and the
same content is refused for a while where it comes again. Others were in the same batch, or somebody
killed the worker meanwhile, so a content counts the more the surer it is:

* alone in its batch: 1, and with evidence that the process ended by itself for ten minutes, without
  for one;
* in company: a half;
* where the same variant has answered the same content lately and nothing speaks against it: 0.

From 1 on it is refused. What is answered is forgiven. Contents are kept as hashes, by variant, in
bounded memory; nothing is hashed for a variant that lost no worker, but one answer of sixteen.
"""

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

from workers.process.last_batch import Evidence
from workers.runtimes.protocol import Tensor

BLOCKS = 1.0
"""Strikes from which a content is refused."""
SURE_MS = 600_000.0
UNSURE_MS = 60_000.0
"""How long a strike counts, with and without evidence."""
MOST = 10_000
"""Contents with a strike."""
ANSWERED = 1_024
"""Contents that were answered lately."""
SAMPLED = 16
"""One answer of so many is remembered."""
SAMPLE_BYTES = 65_536
"""Of the largest that is: hashing takes about 1 µs for each kB."""

Key = tuple[str, str, bytes]
"""Task, variant, digest."""


def digest(tensors: Sequence[Tensor]) -> bytes:
    """A hash of types, shapes and values."""
    made = blake2b(digest_size=16)
    for tensor in tensors:
        made.update(f"{tensor.dtype.str}{tensor.shape}".encode())
        made.update(tensor.tobytes())
    return made.digest()


class LethalQueries:
    """The memory of one gateway. Times in ms on the query path's clock."""

    def __init__(self) -> None:
        self._strikes: OrderedDict[Key, tuple[float, float]] = OrderedDict()
        """How much counts against it, and until when."""
        self.suspected: dict[tuple[str, str], int] = {}
        """How many contents of a variant have a strike."""
        self._answered: OrderedDict[Key, None] = OrderedDict()
        self._count = 0

    def lost(
        self,
        task: str,
        variant: str,
        tensors: Sequence[Tensor],
        company: int,
        evidence: Evidence,
        now_ms: float,
    ) -> bool:
        """A worker ended while it ran a query.

        Args:
            company: queries in the batch, this one included.

        Returns:
            Whether the query may have been the cause, so that it is not tried again.
        """
        key = (task, variant, digest(tensors))
        if key in self._answered and not evidence:
            return False
        before, _ = self._known(key, now_ms) or (0.0, 0.0)
        for_ms = SURE_MS if evidence or before else UNSURE_MS
        if key not in self._strikes:
            self.suspected[task, variant] = self.suspected.get((task, variant), 0) + 1
        weight = before + (BLOCKS if company == 1 else BLOCKS / 2)
        self._strikes[key] = (weight, now_ms + for_ms)
        self._strikes.move_to_end(key)
        if len(self._strikes) > MOST:
            self._forget(next(iter(self._strikes)))
        return True

    def blocked_ms(
        self, task: str, variant: str, tensors: Sequence[Tensor], now_ms: float
    ) -> float:
        """For how long a query is still refused; 0 if it is not."""
        if (task, variant) not in self.suspected:
            return 0.0
        known = self._known((task, variant, digest(tensors)), now_ms)
        return known[1] - now_ms if known is not None and known[0] >= BLOCKS else 0.0

    def answered(self, task: str, variant: str, tensors: Sequence[Tensor]) -> None:
        """A query was answered; called for each."""
        self._count += 1
        if self._count % SAMPLED and not (self._strikes and (task, variant) in self.suspected):
            return
        if sum([tensor.nbytes for tensor in tensors]) > SAMPLE_BYTES and not self._strikes:
            return
        key = (task, variant, digest(tensors))
        self._answered[key] = None
        self._answered.move_to_end(key)
        if len(self._answered) > ANSWERED:
            self._answered.popitem(last=False)
        if key in self._strikes:
            self._forget(key)

    def _known(self, key: Key, now_ms: float) -> tuple[float, float] | None:
        found = self._strikes.get(key)
        if found is not None and now_ms >= found[1]:
            self._forget(key)
            return None
        return found

    def _forget(self, key: Key) -> None:
        del self._strikes[key]
        variant = key[:2]
        self.suspected[variant] -= 1
        if not self.suspected[variant]:
            del self.suspected[variant]
