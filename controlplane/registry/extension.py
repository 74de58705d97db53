"""Building more variants of a model version that is registered already.

For when a back end was installed later, or training rows turned up. The version's source is in the
store; rows to measure accuracy on are not, so they have to be given again.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from controlplane.building.build_cache import BuildCache
from controlplane.building.family import REFERENCE, BuiltVariant
from controlplane.building.meter import Meter
from controlplane.building.text_encoding import request_of_task
from controlplane.building.types import (
    Progress,
    RegistrationLimits,
    RegistrationRequest,
    RegistrationResult,
)
from controlplane.building.work_folder import work_folder
from controlplane.registry.preparation import STEPS_EXPECTED, preparation_for
from controlplane.registry.storing import commit, result_of
from controlplane.views.catalog.tasks import find_task
from variants.artifacts.protocol import ArtifactStore
from variants.artifacts.storing_notes import StoringNotes
from variants.builders.registry import BUILDERS, variant_name
from variants.catalog.protocol import Catalog
from variants.catalog.validity.absent import no_version_of
from variants.errors import Conflict, InvalidInput, NotFound, VariantNotLoadable
from variants.types import CatalogSnapshot, DeviceKind, Digest, ModelVersion, Stage, Variant


def extend(
    request: RegistrationRequest,
    model: str,
    number: int | None,
    catalog: Catalog,
    store: ArtifactStore,
    device_kinds: Sequence[DeviceKind],
    progress: Callable[[Progress], None] = lambda _: None,
    *,
    limits: RegistrationLimits | None = None,
    scratch: Path | None = None,
    cache: BuildCache | None = None,
    notes: StoringNotes | None = None,
) -> RegistrationResult:
    """Add the kinds of variants that a version lacks, of those that the request asks for.

    All of them are added or none. The request's path, labels and defaults play no part.

    Args:
        number: of the version; else the model's newest that is not retired.
        cache: has what was built and measured before, and keeps what is now.
        notes: by them what was stored is found where this is killed before the catalog is written.

    Raises:
        TaskNotFound, NotFound: there is no such task or version.
        Conflict: it has all of these kinds already.
        InvalidArtifact, InvalidInput: rows or kinds are refused.
        ArtifactDamaged: the version's source, or the model itself as a variant, is damaged.
        StateUnavailable: catalog or store cannot be reached.
    """
    limits = limits or RegistrationLimits()
    snapshot = catalog.snapshot()
    task = find_task(snapshot, request.task)
    version = _version(snapshot, request.task, model, number)
    missing, reference = _lacking(request, version, snapshot)
    # What was not asked for by name is built where it can be, and not reported where it cannot.
    request = replace(request, kinds=missing if request.kinds else None)
    meter = Meter(progress, total=2 + STEPS_EXPECTED)
    with work_folder(scratch) as work:
        request = request_of_task(request, task, version, catalog.tokenizer, work)
        preparation = preparation_for(
            request, device_kinds, snapshot, store, meter, limits, extended=version, cache=cache
        )
        built = BuiltVariant(
            kind=REFERENCE,
            variant=reference,
            path=_sound(store, reference.artifact, reference.name),
        )
        source = _sound(store, version.source, version.label)
        prepared = preparation.extend(version, source, task, work, built)
        commit(
            [prepared], catalog, store, meter,
            lambda one: catalog.add_variants(one.variants, one.profiles, one.device_kinds),
            notes,
        )  # fmt: skip
    return result_of([prepared], task, snapshot)


def _lacking(
    request: RegistrationRequest, version: ModelVersion, snapshot: CatalogSnapshot
) -> tuple[tuple[str, ...], Variant]:
    """The kinds asked for that a version lacks, and the model itself as a variant.

    Raises:
        Conflict: it lacks none.
        InvalidInput: it has no variant that is the model itself.
    """
    own = {
        v.name: v
        for v in snapshot.variants
        if (v.task, v.model_version) == (version.task, version.label)
    }
    asked = request.kinds or tuple(BUILDERS)
    names = {kind: variant_name(version.model, version.version, kind) for kind in asked}
    missing = tuple(kind for kind in asked if names[kind] not in own)
    if not missing:
        raise Conflict(f"{version.label} has {', '.join(asked)} already")
    reference = own.get(variant_name(version.model, version.version, REFERENCE))
    if reference is None:
        raise InvalidInput(f"{version.label} has no variant {REFERENCE} to compare others with")
    return missing, reference


def _sound(store: ArtifactStore, digest: Digest, subject: str) -> Path:
    """A readable path of the artifact of ``subject``, which was read and is not damaged.

    Raises:
        VariantNotLoadable, ArtifactDamaged: it is damaged or missing; the message says what to do.
    """
    try:
        return store.sound(digest)
    except VariantNotLoadable as error:
        kind = type(error)
        raise kind(f"{subject}: {error.message}; `modelless repair` says what to do") from error


def _version(snapshot: CatalogSnapshot, task: str, model: str, number: int | None) -> ModelVersion:
    of_model = [v for v in snapshot.versions if (v.task, v.model) == (task, model)]
    if not of_model:
        raise NotFound(f"task {task[:128]!r} has no model {model[:128]!r}")
    if number is None:
        serving = [v for v in of_model if v.stage is not Stage.RETIRED] or of_model
        return max(serving, key=lambda version: version.version)
    for version in of_model:
        if version.version == number:
            return version
    known = (version.version for version in of_model)
    raise no_version_of(f"model {model[:128]!r}", number, known)
