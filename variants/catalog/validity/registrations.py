"""What a registration may bring, and what may join a version that is registered.

Each check raises with one sentence that names the thing and what is wrong with it. What is stored
already comes in as arguments.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from variants.catalog.validity.absent import no_version
from variants.catalog.validity.plain_values import (
    check_count,
    check_digest,
    check_name,
    check_storable,
    check_unique,
)
from variants.catalog.validity.profiles import check_device_kind, check_profile
from variants.catalog.validity.tasks import MOST_LABELS, check_task
from variants.catalog.validity.texts import check_version_text
from variants.errors import Conflict, InvalidInput, NotFound
from variants.figures import some_of
from variants.types import (
    DeviceKindName,
    ModelVersion,
    Profile,
    Registration,
    Task,
    TaskName,
    Variant,
    VariantName,
)


def check_registration(
    registration: Registration, device_kinds: Collection[DeviceKindName] = ()
) -> None:
    """Refuse a registration that contradicts itself.

    ``device_kinds`` are the kinds that are known already, besides those that it brings along.

    Raises:
        InvalidInput: the first thing found wrong, in one sentence.
    """
    check_task(registration.task)
    _check_version(registration.version, registration.task)
    if not registration.variants:
        raise InvalidInput(f"version {registration.version.label!r} has no variants")
    for variant in registration.variants:
        _check_variant(variant, registration.version)
    check_unique("variant", (variant.name for variant in registration.variants))
    for kind in registration.device_kinds:
        check_device_kind(kind)
    check_unique("device kind", (kind.name for kind in registration.device_kinds))

    names = {variant.name for variant in registration.variants}
    kinds = {kind.name for kind in registration.device_kinds}.union(device_kinds)
    _check_profiles(registration.task.name, registration.profiles, names, kinds)


def version_of(variant: Variant, versions: Iterable[ModelVersion]) -> ModelVersion:
    """The registered version that a variant is of.

    Raises:
        NotFound: there is none.
    """
    wanted = (variant.task, variant.model, variant.version)
    for version in versions:
        if (version.task, version.model, version.version) == wanted:
            return version
    raise no_version(variant.task, variant.model_version)


def check_addition(
    version: ModelVersion,
    variants: tuple[Variant, ...],
    profiles: tuple[Profile, ...],
    *,
    taken: Collection[VariantName],
    device_kinds: Collection[DeviceKindName],
) -> None:
    """Refuse variants that cannot join a version; ``taken`` are the names used in its task.

    Raises:
        InvalidInput: one contradicts itself, the version or the others.
        Conflict: a name is taken.
    """
    for variant in variants:
        _check_variant(variant, version)
        if variant.name in taken:
            raise Conflict(f"task {version.task!r} has a variant {variant.name!r} already")
    check_unique("variant", (variant.name for variant in variants))
    _check_profiles(version.task, profiles, {v.name for v in variants}, device_kinds)


def check_conflicts(
    registration: Registration,
    *,
    task: Task | None,
    versions: Collection[int],
    variants: Collection[VariantName],
    joins: bool = False,
) -> None:
    """Refuse a registration that contradicts what is stored.

    ``task`` is the stored task of that name, ``versions`` the stored versions of the model, and
    ``variants`` the names that are taken in the task. A version that ``joins`` makes no new task.

    Raises:
        Conflict: the first contradiction found, in one sentence.
    """
    new = registration.task
    if task is not None:
        if (task.inputs, task.outputs) != (new.inputs, new.outputs):
            raise Conflict(f"task {new.name!r} exists with another signature")
        if task.labels != new.labels:
            has = some_of(task.labels, MOST_LABELS) if task.labels else "none"
            raise Conflict(f"task {new.name!r} exists with other labels: {has}")
        if task.metric != new.metric:  # by which its accuracy was measured
            raise Conflict(f"task {new.name!r} exists with another metric: {task.metric}")
        if task.bucket != new.bucket:
            raise Conflict(f"task {new.name!r} exists with another length or padding")
        if task.text != new.text:
            raise Conflict(f"task {new.name!r} exists with another way from texts to rows")
    elif joins:
        raise Conflict(
            f"task {new.name!r} was removed while {registration.version.label!r} was prepared for "
            "it; register it again to make the task anew"
        )
    if registration.version.version in versions:
        raise Conflict(
            f"version {registration.version.label!r} of task {new.name!r} exists: another one was"
            " registered meanwhile; registering again makes the next version"
        )
    for variant in registration.variants:
        if variant.name in variants:
            raise Conflict(f"task {new.name!r} has a variant {variant.name!r} already")


def _check_version(version: ModelVersion, task: Task) -> None:
    check_name(version.model, "a model")
    where = f"version {version.label!r}"
    if version.task != task.name:
        raise InvalidInput(f"{where} belongs to task {version.task!r}, not to {task.name!r}")
    check_count(version.version, f"the number of {where}")
    check_digest(version.source, f"the source of {where}")
    check_storable(version.format, f"the format of {where}")
    check_storable(version.created_at, f"the time of {where}")
    check_version_text(version, task)


def _check_profiles(
    task: TaskName,
    profiles: tuple[Profile, ...],
    variants: Collection[VariantName],
    kinds: Collection[DeviceKindName],
) -> None:
    """Refuse profiles of other variants, on unknown device kinds, or two of the same."""
    for profile in profiles:
        check_profile(profile)
        if profile.task != task or profile.variant not in variants:
            raise InvalidInput(
                f"a profile is of variant {profile.variant!r} of task {profile.task!r}, "
                "which is not in this registration"
            )
        if profile.device_kind not in kinds:
            raise InvalidInput(
                f"the profile of variant {profile.variant!r} names "
                f"the unknown device kind {profile.device_kind!r}"
            )
    check_unique("profile", (f"{profile.variant} on {profile.device_kind}" for profile in profiles))


def check_judged(variant: Variant) -> None:
    """Refuse a variant whose answers cannot be worth what it says, with ``InvalidInput``."""
    where = f"variant {variant.name!r}"
    check_count(variant.accuracy_rows, f"the number of evaluation rows of {where}", least=0)
    if not 0 <= variant.accuracy <= 1:
        raise InvalidInput(f"the accuracy of {where} is {variant.accuracy}, not in [0, 1]")
    if variant.agreement is not None and not 0 <= variant.agreement <= 1:
        raise InvalidInput(f"the agreement of {where} is {variant.agreement}, not in [0, 1]")
    check_storable(variant.note, f"the note of {where}")


def not_judged(variant: Variant) -> NotFound:
    """Why what a variant is worth cannot be written."""
    return NotFound(
        f"task {variant.task!r} has no variant {variant.name!r} with the artifact that was judged"
    )


def _check_variant(variant: Variant, version: ModelVersion) -> None:
    check_name(variant.name, "a variant")
    where = f"variant {variant.name!r}"
    if (variant.task, variant.model, variant.version) != (
        version.task,
        version.model,
        version.version,
    ):
        raise InvalidInput(
            f"{where} belongs to {variant.model_version!r} of task {variant.task!r}, "
            f"not to {version.label!r} of task {version.task!r}"
        )
    check_name(variant.runtime, "a runtime")
    check_digest(variant.artifact, f"the artifact of {where}")
    check_judged(variant)
    if not 0 <= variant.size_bytes < 2**63:
        raise InvalidInput(f"the size of {where} is {variant.size_bytes} bytes")
    _check_options(variant.options, where)


def _check_options(options: Mapping[Any, Any], where: str) -> None:
    for key, value in options.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidInput(f"option {key!r} of {where} is not text")
        check_storable(key, f"an option of {where}")
        check_storable(value, f"option {key!r} of {where}")
