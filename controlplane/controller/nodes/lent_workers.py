"""LentWorkers: one more worker of a kind than would run, while `modelless upgrade` replaces others.

Of a kind of which a fixed number runs, one more is asked for. Where plans decide, they would give
it up at once: there it is raised how many they leave at least. When it is given back, plans leave
no more than there were before, which they would else wait with (``MODELLESS_LINGER_S``).
"""

from collections.abc import Collection, Mapping

from variants.types import DeviceKindName

Counts = Mapping[DeviceKindName, int]


class LentWorkers:
    """How many ran of each kind of which one more does, or did just now."""

    def __init__(self) -> None:
        self._before: dict[DeviceKindName, int] = {}
        self._lent: frozenset[DeviceKindName] = frozenset()

    def wanted(
        self,
        wanted: Counts,
        least: Counts,
        running: Counts,
        replacing: Collection[str],
    ) -> dict[DeviceKindName, int]:
        """How many are wanted of each kind, with those that are lent.

        Args:
            wanted: without them.
            least: how many of these plans leave at least.
            running: how many Ray Serve is told to run.
            replacing: kinds of which one more is to run.
        """
        self._lent = frozenset(kind for kind in wanted if kind in replacing)
        for kind in self._lent:
            self._before.setdefault(kind, running.get(kind, 0))
        for kind in self._before.keys() - self._lent:
            decided = least.get(kind, 0) < wanted.get(kind, 0)
            if not decided or running.get(kind, 0) <= self._before[kind]:
                del self._before[kind]
        return {
            kind: count + 1 if kind in self._lent else min(count, self._before.get(kind, count))
            for kind, count in wanted.items()
        }

    def least(self, least: Counts, wanted: Counts) -> dict[DeviceKindName, int]:
        """How many of each kind plans leave at least.

        Args:
            least: without those that are lent.
            wanted: with them.
        """
        return {
            kind: max(count, min(self._before[kind] + 1, wanted[kind]))
            if kind in self._lent
            else count
            for kind, count in least.items()
        }
