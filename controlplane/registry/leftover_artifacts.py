"""Artifacts that nothing registered uses.

Those of tasks and versions that were removed are deleted once no worker has them loaded; those of
registrations that were killed before the catalog was written, once their notes are old enough.
What no note tells of, such as in a bucket, is found by looking (``look_for_unused``), and deleted
where somebody says that all catalogs which use the store were looked at.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from variants.artifacts.protocol import ArtifactStore
from variants.artifacts.storing_notes import StoringNotes
from variants.catalog.protocol import Catalog
from variants.catalog.removal import Freed
from variants.errors import NotFound
from variants.figures import counted
from variants.types import CatalogSnapshot, CatalogState, Digest
from workers.types import WorkerStatus

AT_ONCE = 16
"""Artifacts that are deleted in one turn of the control loop, or in one transaction. Nothing can be
registered meanwhile, and each may take a bucket a tenth of a second."""
LOOK_EVERY_S = 3_600.0
ABANDONED_S = 3_600.0
"""How old the note of a killed registration has to be: none takes longer to store what it has
measured, and on a file system of several machines a lock may not be seen."""


class LeftoverArtifacts:
    """Looks when the catalog has changed, and then until nothing is left over."""

    def __init__(
        self,
        catalog: Catalog,
        store: ArtifactStore,
        tell: Callable[[str, str, str], None],
        notes: StoringNotes | None = None,
    ) -> None:
        """
        Args:
            tell: is given the kind, the subject and the message of an event.
            notes: say whether other catalogs keep artifacts in the store; nothing is deleted then.
                Without them nobody knows, and this one is taken to be alone.
        """
        self._notes = notes
        self._catalog = catalog
        self._store = store
        self._tell = tell
        self._looked_at: CatalogState = (-1, "")
        """The state of the catalog in which nothing was left over."""
        self._freed: list[Freed] = []
        """What was freed since then and not told yet."""
        self._freed_bytes = 0
        self._shared = 0
        """Artifacts that were kept because another catalog may use them, and not told yet."""

    async def free(self, known: CatalogSnapshot, workers: Iterable[WorkerStatus]) -> None:
        """Delete some of what is left over, unless a worker still has loaded what the catalog
        lacks. It is told once nothing is left.

        Raises:
            StateUnavailable: the database or the store is away. It is tried again.
        """
        if known.state == self._looked_at:
            return
        variants = {variant.key for variant in known.variants}
        replicas = (one for status in workers for one in status.replicas)
        if any((one.task, one.variant) not in variants for one in replicas):
            return
        if left := await asyncio.to_thread(self._catalog.leftovers):
            await asyncio.to_thread(self._free, sorted(left)[:AT_ONCE])
        if len(left) <= AT_ONCE:
            self._say()
            self._looked_at = known.state

    def _free(self, first: Sequence[Digest]) -> None:
        """Free the first ones by their digests."""
        if self._notes is not None and self._notes.shared():
            found = self._catalog.free(lambda _: None, most=AT_ONCE)
            self._freed.append(replace(found, deleted=()))
            self._shared += len(found.deleted)
            return
        # Asked before: where the store is away, nobody waits for it but this.
        sizes = {digest: self._size_bytes(digest) for digest in first}
        found = self._catalog.free(self._store.delete, most=AT_ONCE)
        self._freed.append(found)
        self._freed_bytes += sum(sizes.get(digest, 0) for digest in found.deleted)

    def _size_bytes(self, digest: Digest) -> int:
        try:
            return self._store.size_bytes(digest)
        except NotFound:
            return 0

    def _say(self) -> None:
        told, self._freed = self._freed, []
        size_bytes, self._freed_bytes = self._freed_bytes, 0
        if not told:
            return
        deleted, used = sum(len(one.deleted) for one in told), sum(len(one.used) for one in told)
        said = f"{counted(deleted, 'artifact')} deleted, {size_bytes / 2**20:,.1f} MiB"
        if used:
            said += f"; {counted(used, 'artifact')} kept, which other versions use"
        if self._shared:
            said += f"; {counted(self._shared, 'artifact')} kept, which another catalog may use"
            self._shared = 0
        subjects = dict.fromkeys(subject for one in told for subject in one.subjects)
        self._tell("artifacts_freed", ", ".join(subjects), said)


class AbandonedArtifacts:
    """Looks once an hour for what killed registrations have stored; the first time at once."""

    def __init__(
        self,
        catalog: Catalog,
        store: ArtifactStore,
        notes: StoringNotes | None,
        tell: Callable[[str, str, str], None],
        clock_s: Callable[[], float],
    ) -> None:
        """Without ``notes`` there is nothing to look for."""
        self._catalog = catalog
        self._store = store
        self._notes = notes
        self._tell = tell
        self._clock_s = clock_s
        self._looks_at_s = float("-inf")

    async def free(self) -> None:
        """Delete what is abandoned, when it is time to look.

        Raises:
            StateUnavailable: the database or the store is away. It is tried again.
        """
        if self._notes is None or self._clock_s() < self._looks_at_s:
            return
        deleted, size_bytes = await asyncio.to_thread(self._free, self._notes)
        self._looks_at_s = self._clock_s() + LOOK_EVERY_S
        if deleted:
            said = f"{counted(deleted, 'artifact')} deleted, {size_bytes / 2**20:,.1f} MiB"
            self._tell("abandoned_artifacts_freed", "artifacts", said)

    def _free(self, notes: StoringNotes) -> tuple[int, int]:
        """How many artifacts were deleted, and how many bytes they had."""
        deleted = size_bytes = 0
        with notes.abandoned(ABANDONED_S) as found:
            for note in found:
                sizes = {}
                for digest in note.digests:
                    with suppress(NotFound):
                        sizes[digest] = self._store.size_bytes(digest)
                gone = self._catalog.discard(tuple(sizes), self._store.delete)
                deleted += len(gone)
                size_bytes += sum(sizes[digest] for digest in gone)
                note.forget()
        return deleted, size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Unused:
    """A stored artifact that no catalog names."""

    digest: Digest
    size_bytes: int
    stored_s: float
    """Unix time, by the clock of where it is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedArtifacts:
    """What was found in a store."""

    stored: int
    """Artifacts that are there."""
    named: int
    """Artifacts of the store that some catalog names."""
    unused: tuple[Unused, ...]
    """The oldest first."""
    younger: int
    """Others that no catalog names yet: a registration may be about to."""


def look_for_unused(
    store: ArtifactStore, catalogs: Sequence[Catalog], *, before_s: float
) -> UnusedArtifacts:
    """The artifacts that none of these catalogs names, and that were stored before that time.

    Args:
        before_s: Unix time.

    Raises:
        StateUnavailable: the store or a database does not answer.
    """
    # The store first: what is registered meanwhile is named when the catalogs are read.
    stored = frozenset(store.digests())
    named = frozenset().union(*(_named(catalog.snapshot()) for catalog in catalogs))
    found, younger = list[Unused](), 0
    for digest in stored - named:
        if (seen := store.look(digest)) is None:
            continue
        one = Unused(digest=digest, size_bytes=seen.size_bytes, stored_s=seen.mtime_ns / 1e9)
        if one.stored_s < before_s:
            found.append(one)
        else:
            younger += 1
    found.sort(key=lambda one: (one.stored_s, one.digest))
    return UnusedArtifacts(
        stored=len(stored), named=len(stored & named), unused=tuple(found), younger=younger
    )


def delete_unused(
    store: ArtifactStore, catalogs: Sequence[Catalog], found: Iterable[Unused]
) -> tuple[Digest, ...]:
    """Delete those that still no catalog names, and that were not stored again; which these were.

    Nothing is registered in any of the catalogs while some are deleted, ``AT_ONCE`` of them. A
    registration that had stored the same bytes before looks after it was written, and stores them
    again.

    Raises:
        StateUnavailable: the store or a database does not answer; some may be deleted.
    """
    gone: list[Digest] = []

    def delete_where_none(left: Sequence[Catalog], some: Sequence[Unused]) -> None:
        if left:
            known = {one.digest: one for one in some}
            left[0].discard(
                tuple(known), lambda digest: delete_where_none(left[1:], [known[digest]])
            )
            return
        for one in some:
            if (seen := store.look(one.digest)) and seen.mtime_ns / 1e9 == one.stored_s:
                store.delete(one.digest)
                gone.append(one.digest)

    waiting = list(found)
    for first in range(0, len(waiting), AT_ONCE):
        delete_where_none(catalogs, waiting[first : first + AT_ONCE])
    return tuple(gone)


def _named(known: CatalogSnapshot) -> frozenset[Digest]:
    """The artifacts that a catalog names."""
    return frozenset(version.source for version in known.versions) | {
        variant.artifact for variant in known.variants
    }


def without_removed(
    statuses: Iterable[WorkerStatus], known: CatalogSnapshot
) -> Iterator[WorkerStatus]:
    """The statuses without what workers only list, such as a variant in quarantine, and the catalog
    has no more: nobody can do anything about it."""
    variants = {variant.key for variant in known.variants}
    for status in statuses:
        replicas = tuple(
            one
            for one in status.replicas
            if not one.state.kept_out or (one.task, one.variant) in variants
        )
        same = len(replicas) == len(status.replicas)
        yield status if same else replace(status, replicas=replicas)
