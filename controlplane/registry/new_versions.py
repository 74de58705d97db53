"""Which of the files that are handed in are new, and which version each of these becomes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from controlplane.building.types import RegistrationRequest
from controlplane.profiling.workbench import now
from variants.catalog.protocol import Catalog
from variants.catalog.removal import check_number
from variants.catalog.validity.spaces import WHY, is_own_space
from variants.errors import Conflict
from variants.metrics.metric import TOP1
from variants.model_files import ModelFile
from variants.types import (
    CatalogSnapshot,
    Digest,
    ModelName,
    ModelVersion,
    Stage,
    TaskName,
    TextInput,
)


class Sorted(NamedTuple):
    """Files by whether they are registered already, with the same bytes."""

    new: list[ModelFile]
    unchanged: tuple[str, ...]
    """Labels of versions."""
    nothing_new: Conflict | None
    """Why none is new, where none is."""


def sort_out(
    files: Sequence[ModelFile],
    digests: Mapping[ModelFile, Digest],
    snapshot: CatalogSnapshot,
    task: TaskName,
) -> Sorted:
    """
    Raises:
        Conflict: a file has the number of a version with other bytes.
    """
    new: list[ModelFile] = []
    unchanged: list[str] = []
    for file in files:
        known = [v for v in snapshot.versions if (v.task, v.model) == (task, file.model)]
        same = next((v for v in known if v.version == file.version), None)
        if same is not None:
            if same.source != digests[file]:
                raise Conflict(
                    f"version {same.label!r} of task {task!r} exists with other bytes; "
                    "give the new model a new number"
                )
            unchanged.append(same.label)
            continue
        twin = next((v for v in known if v.source == digests[file]), None)
        if file.version is None and twin is not None:
            build = f"modelless variants build {task} {twin.model} {twin.version}"
            message = (
                f"{file.path.name} is registered already, as {twin.label!r}; "
                f"`{build}` adds kinds of variants that it lacks"
            )
            return Sorted([], (twin.label,), Conflict(message))
        new.append(file)
    labels = ", ".join(unchanged)
    nothing_new = Conflict(f"{labels}: registered already, and nothing is new") if not new else None
    return Sorted(new, tuple(unchanged), nothing_new)


def known_of(
    files: Sequence[ModelFile],
    digests: Mapping[ModelFile, Digest],
    snapshot: CatalogSnapshot,
    task: TaskName,
) -> list[tuple[ModelFile, ModelVersion]]:
    """Files that are sources of versions of their model, each with its version."""
    return [
        (file, version)
        for file in files
        for version in snapshot.versions
        if (version.task, version.model, version.source) == (task, file.model, digests[file])
        and file.version in (None, version.version)
    ]


def version_of(
    file: ModelFile,
    digest: Digest,
    task: TaskName,
    stage: Stage,
    catalog: Catalog,
    own_text: TextInput | None = None,
) -> ModelVersion:
    """The version that a file becomes: the number of its folder, or else the next one."""
    return ModelVersion(
        task=task,
        model=file.model,
        version=file.version or catalog.next_version(task, file.model),
        stage=stage,
        source=digest,
        format=file.path.suffix.removeprefix("."),
        created_at=now(),
        text=own_text,
    )


def refuse_removed(file: ModelFile, digest: Digest, task: TaskName, catalog: Catalog) -> None:
    """Refuse the number of another model that was removed now, not when all is measured.

    Raises:
        Conflict: the number of the file's folder was that of other bytes.
    """
    if file.version is not None:
        version = version_of(file, digest, task, Stage.CANARY, catalog)
        check_number(version, catalog.removed_versions(task, file.model))


def stage_of(
    request: RegistrationRequest,
    model: ModelName,
    task: str,
    snapshot: CatalogSnapshot,
    later: bool,
) -> Stage:
    """Live for a model's first version; the next ones have to prove themselves. So has any that
    comes beside a live one whose vectors its own cannot be compared with.

    Args:
        later: whether it comes with another file of the same registration.

    Raises:
        Conflict: it is to be live beside such a one.
    """
    known_task = next((one for one in snapshot.tasks if one.name == task), None)
    metric = request.metric or str(TOP1) if known_task is None else known_task.metric
    live = [v for v in snapshot.versions if v.task == task and v.stage is Stage.LIVE]
    apart = is_own_space(metric) and bool(live or later)
    if request.stage is Stage.LIVE and apart:
        beside = live[0].label if live else "the first file"
        raise Conflict(
            f"{beside} of task {task!r} is live, and {WHY}: register it as a canary, and"
            " `modelless promote` it when all vectors that are kept are its"
        )
    if request.stage is not None:
        return request.stage
    known = any((v.task, v.model) == (task, model) for v in snapshot.versions)
    return Stage.CANARY if known or later or apart else Stage.LIVE
