"""Building more variants of a model version that is registered already.

For when a back end was installed later, or training rows turned up. The version's source is in the
store; rows to measure accuracy on are not, so they have to be given again.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from controlplane.building import REFERENCE, BuiltVariant
from controlplane.frontier import find_task
from controlplane.measuring import history_of
from controlplane.meter import Meter
from controlplane.preparation import STEPS_EXPECTED, Preparation
from controlplane.registration import commit, teacher_of
from controlplane.registration_types import (
    Progress,
    RegistrationLimits,
    RegistrationRequest,
    RegistrationResult,
)
from variants.artifacts import ArtifactStore
from variants.builders import BUILDERS, variant_name
from variants.catalog import Catalog
from variants.errors import Conflict, InvalidInput, NotFound
from variants.types import CatalogSnapshot, DeviceKind, ModelVersion, Stage


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
) -> RegistrationResult:
    """Add the kinds of variants that a version lacks, of those that the request asks for.

    All of them are added or none. The request's path, labels and defaults play no part.

    Args:
        number: of the version; else the model's newest that is not retired.

    Raises:
        TaskNotFound, NotFound: there is no such task or version.
        Conflict: it has all of these kinds already.
        InvalidArtifact, InvalidInput: rows or kinds are refused.
        StateUnavailable: catalog or store cannot be reached.
    """
    limits = limits or RegistrationLimits()
    snapshot = catalog.snapshot()
    task = find_task(snapshot, request.task)
    version = _version(snapshot, request.task, model, number)
    own = {
        v.name: v
        for v in snapshot.variants
        if (v.task, v.model_version) == (task.name, version.label)
    }
    asked = request.kinds or tuple(BUILDERS)
    new = tuple(k for k in asked if variant_name(version.model, version.version, k) not in own)
    if not new:
        raise Conflict(f"{version.label} has {', '.join(asked)} already")
    reference = own.get(variant_name(version.model, version.version, REFERENCE))
    if reference is None:
        raise InvalidInput(f"{version.label} has no variant {REFERENCE} to compare others with")
    # What was not asked for by name is built where it can be, and not reported where it cannot.
    kinds = new if request.kinds else None
    meter = Meter(progress, total=2 + STEPS_EXPECTED)
    known = tuple(sorted(device_kinds, key=lambda kind: kind.gpu is not None))
    preparation = Preparation(
        replace(request, kinds=kinds), known, meter, limits, built=frozenset(own),
        teacher=teacher_of(task.name, snapshot, store),
        history={kind.name: history_of(snapshot, kind, but=version.label) for kind in known},
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="modelless-", dir=scratch) as work:
        prepared = preparation.extend(
            version,
            store.path(version.source),
            task,
            Path(work),
            BuiltVariant(kind=REFERENCE, variant=reference, path=store.path(reference.artifact)),
        )
        added = prepared.registration
        commit(
            [prepared], catalog, store, meter,
            lambda one: catalog.add_variants(one.variants, one.profiles, one.device_kinds),
        )  # fmt: skip
    return RegistrationResult(
        task=task,
        versions=(version,),
        variants=added.variants,
        profiles=added.profiles,
        skipped=prepared.skipped,
    )


def _version(snapshot: CatalogSnapshot, task: str, model: str, number: int | None) -> ModelVersion:
    of_model = [v for v in snapshot.versions if (v.task, v.model) == (task, model)]
    if not of_model:
        raise NotFound(f"task {task!r} has no model {model!r}")
    if number is None:
        serving = [v for v in of_model if v.stage is not Stage.RETIRED] or of_model
        return max(serving, key=lambda version: version.version)
    for version in of_model:
        if version.version == number:
            return version
    known = ", ".join(str(version.version) for version in of_model)
    raise NotFound(f"model {model!r} has no version {number}; there are: {known}")
