"""Writing prepared versions: artifacts into the store, then the catalog; all of it or nothing."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress

from controlplane.building.beside_live import beside_live
from controlplane.building.doubt import (
    far_from_best,
    short_of_default,
    slow_for_default,
    too_large,
)
from controlplane.building.meter import Meter
from controlplane.building.types import Prepared, RegistrationResult, Reused
from controlplane.building.worse_classes import worse_classes
from controlplane.registry.over_rest.outcomes import REGISTERED
from variants.artifacts.protocol import ArtifactStore
from variants.artifacts.storing_notes import Note, StoringNotes
from variants.catalog.protocol import Catalog
from variants.errors import InvalidArtifact, NotFound, StateUnavailable
from variants.types import CatalogSnapshot, Digest, Task


def commit(
    prepared: Sequence[Prepared],
    catalog: Catalog,
    store: ArtifactStore,
    meter: Meter,
    write: Callable[..., None],
    notes: StoringNotes | None = None,
    *,
    together: bool = False,
) -> None:
    """Store the artifacts and write the catalog, version by version in the order given.

    Args:
        write: writes the versions that it is given, each with its variants, into ``catalog``.
        together: whether it is given all of them at once, or one by one.
        notes: by them others find what this has stored where it is killed before the catalog is
            written.

    Raises:
        InvalidArtifact: a file changed after it was measured. As after any other error, an
            interrupt included, the artifacts that were stored and that nothing in the catalog uses
            are removed again.
    """
    # Noted before the first byte is written: an interrupt can come at any point.
    present = set(store.digests())
    added = set[Digest]().union(*map(_named, prepared)) - present
    noting: AbstractContextManager[Note | None] = nullcontext()
    if notes is not None and added:
        noting = notes.noted(added)
    with noting as note:
        try:
            for group in [prepared] if together else [[one] for one in prepared]:
                for one in group:
                    meter.begin("store", f"storing {one.registration.version.label}")
                    stored = {store.put(path) for path in one.artifacts}
                    added |= stored - present
                    if not stored <= _named(one):
                        label = one.registration.version.label
                        raise InvalidArtifact(f"{label}: a file changed after it was measured")
                write(*(one.registration for one in group))
                for one in group:
                    _store_again(one, store)
            # At once: whoever interrupts this from now on interrupts nothing.
            meter.finish("store", REGISTERED)
        except BaseException:
            # Where the catalog is away they stay, and so does the note.
            with suppress(StateUnavailable):
                catalog.discard(added, store.delete)
                if note is not None:
                    note.forget()
            raise
        if note is not None:
            note.forget()


def _named(one: Prepared) -> set[Digest]:
    """The artifacts that the catalog has of a version once it is written."""
    version, variants = one.registration.version, one.registration.variants
    return {version.source, *(variant.artifact for variant in variants)}


def _store_again(one: Prepared, store: ArtifactStore) -> None:
    """Put back what was freed between its storing and the catalog's writing: something that used
    the same bytes was removed. From now on this uses them, and they stay."""
    try:
        for digest in _named(one):
            store.size_bytes(digest)
    except NotFound:
        for path in one.artifacts:
            store.put(path)


def result_of(
    prepared: Sequence[Prepared],
    task: Task,
    before: CatalogSnapshot,
    *,
    unchanged: tuple[str, ...] = (),
    repaired: tuple[str, ...] = (),
    said: tuple[str, ...] = (),
) -> RegistrationResult:
    """What was written for a task, and the labels and sentences of what was there before,
    which ``before`` has."""
    registrations = [one.registration for one in prepared]
    return RegistrationResult(
        task=task,
        versions=tuple(one.version for one in registrations),
        variants=tuple(variant for one in registrations for variant in one.variants),
        profiles=tuple(profile for one in registrations for profile in one.profiles),
        device_kinds=tuple(
            {kind.name: kind for one in registrations for kind in one.device_kinds}.values()
        ),
        skipped=tuple(skipped for one in prepared for skipped in one.skipped),
        unchanged=unchanged,
        doubts=tuple(
            said
            for one in prepared
            for said in (
                one.doubt,
                too_large(one.registration),
                short_of_default(one.registration),
                slow_for_default(one.registration),
                far_from_best(one.registration, before),
                worse_classes(one.registration, before),
            )
            if said
        ),
        repaired=repaired,
        said=(*said, *filter(None, (beside_live(one, before) for one in registrations))),
        reused=Reused(
            built=tuple(name for one in prepared for name in one.reused.built),
            measured=tuple(name for one in prepared for name in one.reused.measured),
        ),
    )
