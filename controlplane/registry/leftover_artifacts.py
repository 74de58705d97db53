"""Artifacts of tasks and versions that were removed: deleted once no worker has them loaded."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from variants.artifacts.protocol import ArtifactStore
from variants.catalog.protocol import Catalog
from variants.catalog.removal import Freed
from variants.errors import ModellessError
from variants.figures import counted
from variants.types import CatalogSnapshot, Digest
from workers.types import WorkerStatus


class LeftoverArtifacts:
    """Looks when the catalog has changed, and then until nothing is left over."""

    def __init__(
        self, catalog: Catalog, store: ArtifactStore, tell: Callable[[str, str, str], None]
    ) -> None:
        """``tell`` is given the kind, the subject and the message of an event."""
        self._catalog = catalog
        self._store = store
        self._tell = tell
        self._looked_at = -1
        """The revision at which nothing was left over."""

    async def free(self, known: CatalogSnapshot, workers: Iterable[WorkerStatus]) -> None:
        """Delete what is left over, unless a worker still has loaded what the catalog lacks.

        Raises:
            StateUnavailable: the database or the store is away. It is tried again.
        """
        if known.revision == self._looked_at:
            return
        variants = {variant.key for variant in known.variants}
        replicas = (one for status in workers for one in status.replicas)
        if any((one.task, one.variant) not in variants for one in replicas):
            return
        if await asyncio.to_thread(self._catalog.leftovers):
            self._say(*await asyncio.to_thread(self._free))
        self._looked_at = known.revision

    def _free(self) -> tuple[Freed, int]:
        """What became of them, and how many bytes were freed."""
        size_bytes = 0

        def delete(digest: Digest) -> None:
            nonlocal size_bytes
            try:
                size = self._store.size_bytes(digest)
            except ModellessError:  # not there, or nobody can say
                size = 0
            self._store.delete(digest)
            size_bytes += size

        return self._catalog.free(delete), size_bytes

    def _say(self, freed: Freed, size_bytes: int) -> None:
        said = f"{counted(len(freed.deleted), 'artifact')} deleted, {size_bytes / 2**20:.1f} MiB"
        if freed.used:
            said += f"; {counted(len(freed.used), 'artifact')} kept, which other versions use"
        self._tell("artifacts_freed", ", ".join(freed.subjects), said)


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
