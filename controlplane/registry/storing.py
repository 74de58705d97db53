"""Writing prepared versions: artifacts into the store, then the catalog; all of it or nothing."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from controlplane.building.meter import Meter
from controlplane.building.types import Prepared, RegistrationResult
from controlplane.registry.doubt import short_of_default
from variants.artifacts.protocol import ArtifactStore
from variants.catalog.protocol import Catalog
from variants.errors import InvalidArtifact, NotFound, StateUnavailable
from variants.types import CatalogSnapshot, Digest, Registration, Task


def commit(
    prepared: Sequence[Prepared],
    catalog: Catalog,
    store: ArtifactStore,
    meter: Meter,
    write: Callable[[Registration], None],
) -> None:
    """Store the artifacts and write the catalog, version by version in the order given.

    Args:
        write: writes one version and its variants into ``catalog``.

    Raises:
        InvalidArtifact: a file changed after it was measured. As after any other error, an
            interrupt included, the artifacts that were stored and that nothing in the catalog uses
            are removed again.
    """
    present = set(store.digests())
    added: set[Digest] = set()
    try:
        for one in prepared:
            version = one.registration.version
            meter.begin("store", f"storing {version.label}")
            named = {version.source, *(v.artifact for v in one.registration.variants)}
            # Noted before the first byte is written: an interrupt can come at any point.
            added |= named - present
            stored = {store.put(path) for path in one.artifacts}
            if not stored <= named:
                raise InvalidArtifact(f"{version.label}: a file changed after it was measured")
            write(one.registration)
            _store_again(one, store)
    except BaseException:
        _remove_unused(added, catalog, store)
        raise
    meter.finish("store", "registered")


def _store_again(one: Prepared, store: ArtifactStore) -> None:
    """Put back what was freed between its storing and the catalog's writing: something that used
    the same bytes was removed. From now on this uses them, and they stay."""
    version = one.registration.version
    try:
        for digest in (version.source, *(v.artifact for v in one.registration.variants)):
            store.size_bytes(digest)
    except NotFound:
        for path in one.artifacts:
            store.put(path)


def result_of(
    prepared: Sequence[Prepared],
    task: Task,
    *,
    unchanged: tuple[str, ...] = (),
    repaired: tuple[str, ...] = (),
) -> RegistrationResult:
    """What was written for a task, and the labels and sentences of what was there before."""
    registrations = [one.registration for one in prepared]
    return RegistrationResult(
        task=task,
        versions=tuple(one.version for one in registrations),
        variants=tuple(variant for one in registrations for variant in one.variants),
        profiles=tuple(profile for one in registrations for profile in one.profiles),
        skipped=tuple(skipped for one in prepared for skipped in one.skipped),
        unchanged=unchanged,
        doubts=tuple(
            said
            for one in prepared
            for said in (one.doubt, short_of_default(one.registration))
            if said
        ),
        repaired=repaired,
    )


def _remove_unused(added: set[Digest], catalog: Catalog, store: ArtifactStore) -> None:
    """Remove what was added, unless the catalog uses it.

    A version that was written before the failure keeps its artifacts, and so does another
    registration that has stored the same bytes meanwhile. When the catalog cannot be read, they
    stay: an artifact too many does no harm.
    """
    with suppress(StateUnavailable):
        for digest in added - _artifacts_of(catalog.snapshot()):
            store.delete(digest)


def _artifacts_of(snapshot: CatalogSnapshot) -> set[Digest]:
    return {v.source for v in snapshot.versions} | {v.artifact for v in snapshot.variants}
