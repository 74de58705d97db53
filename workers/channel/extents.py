"""Extents: which bytes of a block of memory are taken, and which are free."""

from bisect import bisect_left

GRANULE = 4_096
"""Extents begin and end at multiples of it, which is a page."""


class Extents:
    """The free bytes of a block, as holes in ascending order; neighbouring ones are joined.

    The first hole that is large enough is taken, so that what is used again and again lies in the
    same place, and stays in the processor's caches. There are as many holes as extents at most.
    """

    __slots__ = ("_begins", "_ends", "size", "taken")

    def __init__(self, size: int) -> None:
        self.size = size
        self.taken = 0
        """Bytes that are not free."""
        self._begins = [0]
        self._ends = [size]

    def take(self, size: int) -> int | None:
        """Where ``size`` bytes begin that were free; None where no hole is that large."""
        size += -size % GRANULE
        for at, begin in enumerate(self._begins):
            if self._ends[at] - begin >= size:
                self.taken += size
                if self._ends[at] - begin == size:
                    del self._begins[at], self._ends[at]
                else:
                    self._begins[at] = begin + size
                return begin
        return None

    def give_back(self, begin: int, size: int) -> None:
        """Free what ``take`` gave for this size."""
        size += -size % GRANULE
        end = begin + size
        self.taken -= size
        at = bisect_left(self._begins, begin)
        if at and self._ends[at - 1] == begin:
            at -= 1
            begin = self._begins[at]
            del self._begins[at], self._ends[at]
        if at < len(self._begins) and self._begins[at] == end:
            end = self._ends[at]
            del self._begins[at], self._ends[at]
        self._begins.insert(at, begin)
        self._ends.insert(at, end)
