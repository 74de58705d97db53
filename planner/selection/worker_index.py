"""The worker index: which workers hold a variant, and which could load it.

Equal sets of workers are the same tuple, so that each is made once and sets are compared by
identity. This also holds from one index to the next while the workers of a device kind stay the
same.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import compress
from operator import attrgetter, is_, is_not

from planner.types import WorkerView
from variants.types import DeviceKind, DeviceKindName, VariantKey

Workers = tuple[WorkerView, ...]

KEPT_SPLITS = 2
"""Splits by sets of workers that no variant has any more are forgotten once there are so many times
as many splits as variants: looking for them takes longer than all else that a load changes."""

_NO_WORKERS: tuple[Workers, Workers] = ((), ())
_drains = attrgetter("draining")


class WorkerIndex:
    """All workers that do not drain, by device kind, with the variants that are ready on each."""

    __slots__ = ("_draining", "_held", "_kinds", "_places", "_views", "same_workers")

    def __init__(
        self,
        workers: Iterable[tuple[WorkerView, Collection[VariantKey]]],
        before: "WorkerIndex | None" = None,
    ) -> None:
        """Takes time for each variant on each worker, or only for what changed since ``before``."""
        pairs = list(workers)
        self._views = [view for view, _ in pairs]
        self._draining = list(map(_drains, self._views))
        self.same_workers = (
            before is not None
            and self._draining == before._draining
            and _same(self._views, before._views)
        )
        """Whether the workers are those of ``before``, whatever they hold."""
        self._held: list[Collection[VariantKey]] = [ready for _, ready in pairs]
        """What is ready on each of them."""
        self._places: list[tuple[DeviceKindName, int]]
        """Of each of them that does not drain: its kind, and which one of the kind it is."""
        self._kinds: dict[DeviceKindName, _WorkersOfKind]
        if before is not None and self.same_workers:
            self._follow(before)
        else:
            self._make(before)

    def _make(self, before: "WorkerIndex | None") -> None:
        siblings: dict[DeviceKindName, tuple[list[WorkerView], list[frozenset[VariantKey]]]] = {}
        self._places = []
        for at, view in enumerate(self._views):
            self._held[at] = ready = frozenset(self._held[at])
            kind = view.device_kind
            if view.draining:
                self._places.append((kind, -1))
                continue
            found = siblings.get(kind)
            if found is None:
                found = siblings[kind] = ([], [])
            self._places.append((kind, len(found[0])))
            found[0].append(view)
            found[1].append(ready)
        known = {} if before is None else before._kinds
        self._kinds = {
            name: _workers_of_kind(tuple(views), held, known.get(name))
            for name, (views, held) in siblings.items()
        }

    def _follow(self, before: "WorkerIndex") -> None:
        """As of the same workers, of which few hold something else."""
        self._places = before._places
        self._kinds = before._kinds
        changed: dict[DeviceKindName, list[frozenset[VariantKey]]] = {}
        # What is the same object is the same: what was kept cannot change.
        others = map(is_not, self._held, before._held)
        for at in [at for at, other in enumerate(others) if other]:
            self._held[at] = ready = frozenset(self._held[at])
            kind, place = self._places[at]
            if place >= 0:
                if kind not in changed:
                    changed[kind] = self._kinds[kind].ready.copy()
                changed[kind][place] = ready
        if changed:
            followed = {kind: before._kinds[kind].follow(held) for kind, held in changed.items()}
            self._kinds = {**before._kinds, **followed}

    def of(self, key: VariantKey, kind: DeviceKind, memory_mib: float) -> tuple[Workers, Workers]:
        """Workers of a kind on which a variant is ready, and those that could load it."""
        found = self._kinds.get(kind.name)
        if found is None:
            return _NO_WORKERS
        split = found.split(key)
        # What is larger than a whole worker can be loaded nowhere.
        return split if memory_mib <= kind.memory_mib else (split[0], ())

    def changes(
        self, before: "WorkerIndex"
    ) -> Mapping[DeviceKindName, Collection[VariantKey] | None]:
        """The variants whose workers changed since ``before``, by device kind; None means all."""
        found: dict[DeviceKindName, Collection[VariantKey] | None] = {}
        for name in self._kinds.keys() | before._kinds.keys():
            ours, theirs = self._kinds.get(name), before._kinds.get(name)
            if ours is None or theirs is None or not _same(ours.views, theirs.views):
                found[name] = None
            elif ours is not theirs:
                found[name] = ours.changed
        return found


class _WorkersOfKind:
    """The workers of one kind."""

    __slots__ = ("_splits", "changed", "masks", "ready", "views")

    def __init__(
        self,
        views: Workers,
        ready: list[frozenset[VariantKey]],
        masks: dict[VariantKey, int],
        splits: dict[int, tuple[Workers, Workers]],
        changed: Collection[VariantKey],
    ) -> None:
        self.views = views
        self.ready = ready
        self.masks = masks
        """Bit i stands for the i-th worker: the cheapest set to build, and one is built for each
        variant on each worker."""
        self.changed = changed
        """Variants with another mask than in the index before."""
        self._splits = splits

    def split(self, key: VariantKey) -> tuple[Workers, Workers]:
        mask = self.masks.get(key, 0)
        split = self._splits.get(mask)
        if split is None:
            bits = _bits(mask, len(self.views))
            split = (
                tuple(compress(self.views, bits.translate(_ONES))),
                tuple(compress(self.views, bits.translate(_ZEROS))),
            )
            self._splits[mask] = split
        return split

    def follow(self, ready: list[frozenset[VariantKey]]) -> "_WorkersOfKind":
        """The same workers with other variants on them; this object when nothing changed."""
        # Sets that are the same object would be compared item by item all the same.
        others = [at for at, other in enumerate(map(is_not, self.ready, ready)) if other]
        # Whether they are equal is found more quickly than what they differ in.
        changes = [at for at in others if self.ready[at] != ready[at]]
        moved = [(at, self.ready[at] ^ ready[at]) for at in changes]
        if not moved:
            return self
        masks = self.masks.copy()
        changed: set[VariantKey] = set()
        for index, keys in moved:
            for key in keys:
                masks[key] = masks.get(key, 0) ^ 1 << index
            changed |= keys
        for key in changed:
            if not masks[key]:
                del masks[key]
        splits = self._splits  # the views are the same
        if len(splits) > KEPT_SPLITS * (len(masks) + 1):
            used = {0, *masks.values()}
            splits = {mask: split for mask, split in splits.items() if mask in used}
        return _WorkersOfKind(self.views, ready, masks, splits, changed)


_ONES, _ZEROS = bytes.maketrans(b"01", b"\0\1"), bytes.maketrans(b"01", b"\1\0")


def _bits(mask: int, count: int) -> bytes:
    """So many digits of a mask, the lowest first: to ask for one bit takes time for all of them."""
    return f"{mask:0{count}b}"[::-1].encode()


def _workers_of_kind(
    views: Workers, ready: list[frozenset[VariantKey]], before: _WorkersOfKind | None
) -> _WorkersOfKind:
    if before is not None and _same(views, before.views):
        return before.follow(ready)
    # Workers often hold the same: then each variant is looked at once for all of them.
    holders: dict[frozenset[VariantKey], int] = {}
    for index, keys in enumerate(ready):
        holders[keys] = holders.get(keys, 0) | 1 << index
    masks: dict[VariantKey, int] = {}
    for keys, bits in holders.items():
        for key in keys:
            masks[key] = masks.get(key, 0) | bits
    return _WorkersOfKind(views, ready, masks, {}, masks.keys())


def _same(ours: Sequence[WorkerView], theirs: Sequence[WorkerView]) -> bool:
    """The same objects, not only equal ones: views change."""
    return len(ours) == len(theirs) and all(map(is_, ours, theirs))
