"""Registering a model: check the file, build its variants, measure them, write the catalog.

The steps run in this order and each may refuse with one sentence::

    find files -> check -> read rows -> build variants -> measure -> store -> catalog

Until ``store`` nothing is written outside a temporary folder.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from controlplane.building import REFERENCE, digest_of
from controlplane.measuring import history_of
from controlplane.meter import Meter
from controlplane.preparation import STEPS_EXPECTED, Preparation
from controlplane.registration_types import (
    Prepared,
    Progress,
    RegistrationLimits,
    RegistrationRequest,
    RegistrationResult,
    SkippedVariant,
)
from controlplane.workbench import now
from variants.artifacts import ArtifactStore
from variants.catalog import Catalog
from variants.errors import Conflict, InvalidInput, NotFound, StateUnavailable
from variants.model_files import ModelFile, find_model_files
from variants.types import (
    NAME,
    CatalogSnapshot,
    DeviceKind,
    Digest,
    ModelName,
    ModelVersion,
    Registration,
    Stage,
    TaskName,
)

__all__ = [
    "Progress",
    "RegistrationLimits",
    "RegistrationRequest",
    "RegistrationResult",
    "SkippedVariant",
    "register",
]


def register(
    request: RegistrationRequest,
    catalog: Catalog,
    store: ArtifactStore,
    device_kinds: Sequence[DeviceKind],
    progress: Callable[[Progress], None] = lambda _: None,
    *,
    limits: RegistrationLimits | None = None,
    scratch: Path | None = None,
) -> RegistrationResult:
    """Add a model's versions to a task, with measured variants.

    Each version is whole or absent. Those of a folder are all measured before the first is written,
    and written in ascending order. Whatever ends this early, an interrupt included, the artifacts
    that it had stored and that nothing in the catalog uses are removed again. ``scratch`` is where
    the temporary folder is made, with room for a few copies of the model; else the system decides.

    Raises:
        InvalidArtifact: the model or the rows are refused.
        InvalidInput: a name or an option cannot be.
        Conflict: the version exists, or the task has another signature, labels or defaults.
        StateUnavailable: catalog or store cannot be reached.
    """
    limits = limits or RegistrationLimits()
    task_name = TaskName(request.task)
    if not NAME.fullmatch(task_name):
        raise InvalidInput(
            f"{request.task!r} cannot be a task's name: lower-case letters, digits, dots, dashes "
            "and underscores can"
        )
    kinds = tuple(sorted(device_kinds, key=lambda kind: kind.gpu is not None))
    if not kinds or kinds[0].gpu is not None:
        raise InvalidInput("there is no CPU device kind to measure on")
    files = find_model_files(request.path, request.model, only=request.only)
    snapshot = catalog.snapshot()
    digests = {file: digest_of(file.path, _limit_mib(file.path, limits)) for file in files}
    new, unchanged = _sort_out(files, digests, snapshot, task_name)
    meter = Meter(progress, total=len(new) * (2 + STEPS_EXPECTED))
    preparation = Preparation(
        request,
        kinds,
        meter,
        limits,
        teacher=teacher_of(task_name, snapshot, store),
        history={kind.name: history_of(snapshot, kind) for kind in kinds},
    )
    task = next((task for task in snapshot.tasks if task.name == task_name), None)
    prepared: list[Prepared] = []
    with tempfile.TemporaryDirectory(prefix="modelless-", dir=scratch) as work:
        for file in new:
            version = ModelVersion(
                task=task_name,
                model=file.model,
                version=file.version or catalog.next_version(task_name, file.model),
                stage=request.stage or _stage(file.model, task_name, snapshot, bool(prepared)),
                source=digests[file],
                format=file.path.suffix.removeprefix("."),
                created_at=now(),
            )
            folder = Path(work) / version.label
            folder.mkdir()
            prepared.append(preparation.prepare(version, file.path, task, folder))
            task = prepared[-1].registration.task
        commit(prepared, catalog, store, meter, catalog.register)
    return RegistrationResult(
        task=prepared[-1].registration.task,
        versions=tuple(one.registration.version for one in prepared),
        variants=tuple(v for one in prepared for v in one.registration.variants),
        profiles=tuple(p for one in prepared for p in one.registration.profiles),
        skipped=tuple(s for one in prepared for s in one.skipped),
        unchanged=unchanged,
    )


def _limit_mib(path: Path, limits: RegistrationLimits) -> float:
    """An archive holds the weights twice: the program's and the ONNX's."""
    return limits.model_mib * (2 if path.suffix == ".pt2" else 1)


def teacher_of(task: TaskName, catalog: CatalogSnapshot, store: ArtifactStore) -> Path | None:
    """The task's most accurate model as it was handed in; None when there is none."""
    known = [v for v in catalog.variants if v.task == task and v.name.endswith(f"-{REFERENCE}")]
    best = max(known, key=lambda variant: (variant.accuracy, variant.name), default=None)
    if best is None:
        return None
    with suppress(NotFound):  # lost; a variant less is no reason to refuse a model
        return store.path(best.artifact)
    return None


def commit(
    prepared: Sequence[Prepared],
    catalog: Catalog,
    store: ArtifactStore,
    meter: Meter,
    write: Callable[[Registration], None],
) -> None:
    """Store the artifacts and write the catalog, or remove what was stored."""
    present = set(store.digests())
    added: set[Digest] = set()
    try:
        for one in prepared:
            version = one.registration.version
            meter.begin("store", f"storing {version.label}")
            # Noted before the first byte is written: an interrupt can come at any point.
            added |= {version.source, *(v.artifact for v in one.registration.variants)} - present
            for path in one.artifacts:
                store.put(path)
            write(one.registration)
    except BaseException:
        _remove_unused(added, catalog, store)
        raise
    meter.finish("store", "registered")


def _remove_unused(added: set[Digest], catalog: Catalog, store: ArtifactStore) -> None:
    """Remove what was added, unless the catalog uses it.

    A version that was written before the failure keeps its artifacts, and so does another
    registration that has stored the same bytes meanwhile. When the catalog cannot say, they stay:
    an artifact too many does no harm.
    """
    with suppress(StateUnavailable):
        for digest in added - _artifacts_of(catalog.snapshot()):
            store.delete(digest)


def _sort_out(
    files: Sequence[ModelFile],
    digests: Mapping[ModelFile, Digest],
    snapshot: CatalogSnapshot,
    task: TaskName,
) -> tuple[list[ModelFile], tuple[str, ...]]:
    """What is new, and the labels of what is registered already with the same bytes."""
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
            raise Conflict(f"{file.path.name} is registered already, as {twin.label!r}")
        new.append(file)
    if not new:
        raise Conflict(f"{', '.join(unchanged)}: registered already, and nothing is new")
    return new, tuple(unchanged)


def _stage(model: ModelName, task: str, snapshot: CatalogSnapshot, later: bool) -> Stage:
    """Live for a model's first version; the next ones have to prove themselves."""
    known = any((v.task, v.model) == (task, model) for v in snapshot.versions)
    return Stage.CANARY if known or later else Stage.LIVE


def _artifacts_of(snapshot: CatalogSnapshot) -> set[Digest]:
    return {v.source for v in snapshot.versions} | {v.artifact for v in snapshot.variants}
