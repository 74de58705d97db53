"""KeptAnswers: answers of one task that are given again, within a time and a number of bytes."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from variants.types import Digest, Sharing, VariantName
from workers.runtimes.protocol import Tensor

ENTRY_BYTES = 640
"""What an answer takes beside its numbers: key, entry and array objects (measured, 590 to 640 for
one output)."""
TENSOR_BYTES = 160
"""For each output."""
AT_ONCE = 1_000
"""Answers that are removed in one turn of the event loop at most: some milliseconds."""

Source = tuple[Digest, float]
"""What makes a variant's answers: its artifact; and its accuracy, which is promised with them."""


class Kept(NamedTuple):
    """An answer, and how it was made."""

    variant: VariantName
    model_version: str
    worker: str
    batch_size: int
    outputs: Sequence[Tensor]
    expires_ms: float
    size_bytes: int
    generation: int


class KeptAnswers:
    """Answers by the content of their queries; of one content there may be one of each variant.

    Who was asked for longest ago leaves first. What is too old is never given.
    """

    def __init__(self, sharing: Sharing, sources: Mapping[VariantName, Source]) -> None:
        """``sources``: what the variants that may answer are made of."""
        self.sharing = sharing
        self._sources = sources
        self._used: dict[VariantName, Source] = {}
        """What the kept answers were made with."""
        self._kept: OrderedDict[tuple[bytes, VariantName], Kept] = OrderedDict()
        self._variants: dict[bytes, tuple[VariantName, ...]] = {}
        """The variants of which there are answers, by content; a content with one has no tuple of
        its own."""
        self._generation = 0
        """Answers of an earlier one are not given; they make room for others, and go in time."""
        self.size_bytes = 0
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._kept)

    def follow(self, sharing: Sharing, sources: Mapping[VariantName, Source]) -> bool:
        """Take over new limits, and what variants are made of now.

        Where a variant whose answers are kept has left service, or is made of something else, all
        answers of the task are forgotten; returns whether they were.
        """
        changed = any(sources.get(name) != source for name, source in self._used.items())
        if sharing.ttl_s < self.sharing.ttl_s:
            changed = True
        self.sharing, self._sources = sharing, sources
        if changed:
            self.clear()
        return changed

    def clear(self) -> None:
        """Give no answer again that is kept now; their memory is freed by the next sweeps."""
        self._used = {}
        self._generation += 1

    def find(self, key: bytes, now_ms: float) -> list[Kept]:
        """The answers to queries of this content that are not too old, the latest used first."""
        found = []
        for variant in reversed(self._variants.get(key, ())):
            kept = self._kept[key, variant]
            if self._good(kept, now_ms):
                found.append(kept)
            else:
                self._remove(key, variant)
        return found

    def used(self, key: bytes, kept: Kept) -> None:
        """An answer is given again: it leaves later."""
        self._kept.move_to_end((key, kept.variant))

    def add(
        self,
        key: bytes,
        variant: VariantName,
        model_version: str,
        worker: str,
        batch_size: int,
        outputs: Sequence[Tensor],
        now_ms: float,
    ) -> None:
        """Keep an answer, in place of one of the same variant.

        Not where nothing is kept, nor where it alone would be too large, nor of a variant that has
        left service meanwhile.
        """
        source = self._sources.get(variant)
        size = (
            ENTRY_BYTES
            + TENSOR_BYTES * len(outputs)
            + sum(int(tensor.nbytes) for tensor in outputs)
        )
        if source is None or not self.sharing.ttl_s or size > self._most_bytes:
            return
        if (key, variant) in self._kept:
            self._remove(key, variant)
        expires_ms = now_ms + self.sharing.ttl_s * 1_000
        # What comes from a worker is a view of all that came with it.
        copies = tuple([tensor.copy() for tensor in outputs])
        for copy in copies:
            copy.flags.writeable = False
        self._kept[key, variant] = Kept(
            variant, model_version, worker, batch_size, copies, expires_ms, size, self._generation
        )
        self._variants[key] = (*self._variants.get(key, ()), variant)
        self._used[variant] = source
        self.size_bytes += size
        self._make_room()

    def sweep(self, now_ms: float) -> None:
        """Forget what is too old, or too much: what has not been used for so long is among it."""
        for _ in range(min(AT_ONCE, len(self._kept))):
            key, variant = next(iter(self._kept))
            if self._good(self._kept[key, variant], now_ms) and self.size_bytes <= self._most_bytes:
                break
            self._remove(key, variant)

    @property
    def _most_bytes(self) -> float:
        return self.sharing.memory_mib * 2**20

    def _good(self, kept: Kept, now_ms: float) -> bool:
        return kept.generation == self._generation and kept.expires_ms > now_ms

    def _make_room(self) -> None:
        for _ in range(AT_ONCE):
            if self.size_bytes <= self._most_bytes:
                break
            key, variant = next(iter(self._kept))
            self.evicted += self._kept[key, variant].generation == self._generation
            self._remove(key, variant)

    def _remove(self, key: bytes, variant: VariantName) -> None:
        self.size_bytes -= self._kept.pop((key, variant)).size_bytes
        left = tuple([other for other in self._variants[key] if other != variant])
        if left:
            self._variants[key] = left
        else:
            del self._variants[key]
