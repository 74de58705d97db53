"""Registering a model: check the file, build its variants, measure them, write the catalog.

The steps run in this order and each may refuse with one sentence::

    find files -> check -> read rows -> build variants -> measure -> store -> catalog

Until ``store`` nothing is written outside a temporary folder. Only what is damaged of versions that
are known already is restored before, now that their files and rows are at hand.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from controlplane.building.build_cache import BuildCache
from controlplane.building.edges import in_plain_form, with_edges, with_weights
from controlplane.building.family import digest_of
from controlplane.building.meter import Meter
from controlplane.building.texts import with_texts
from controlplane.building.types import (
    Prepared,
    Progress,
    RegistrationLimits,
    RegistrationRequest,
    RegistrationResult,
    SkippedVariant,
)
from controlplane.building.work_folder import work_folder
from controlplane.profiling.workbench import now
from controlplane.registry.buckets import as_in_the_others, by_length
from controlplane.registry.preparation import STEPS_EXPECTED, preparation_for
from controlplane.registry.repairing import Mending
from controlplane.registry.storing import commit, result_of
from variants.artifacts.protocol import ArtifactStore
from variants.artifacts.storing_notes import StoringNotes
from variants.buckets import BucketedTask, bucketed_named
from variants.catalog.protocol import Catalog
from variants.catalog.removal import check_number
from variants.errors import Conflict, InvalidInput
from variants.metrics.metric import parse_metric
from variants.model_files import ModelFile, find_model_files
from variants.types import (
    NAME,
    CatalogSnapshot,
    DeviceKind,
    Digest,
    ModelName,
    ModelVersion,
    Stage,
    Task,
    TaskName,
    TextInput,
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
    cache: BuildCache | None = None,
    notes: StoringNotes | None = None,
) -> RegistrationResult:
    """Add a model's versions to a task, with measured variants.

    Each version is whole or absent. Those of a folder are all measured before the first is written,
    and written in ascending order. Whatever ends this early, an interrupt included, the artifacts
    that it had stored and that nothing in the catalog uses are removed again. ``scratch`` is where
    the temporary folder is made, with room for a few copies of the model; else the system decides.
    ``cache`` has what was built and measured of the same before, and keeps what is now: whatever
    ends this early, the next one goes on there.
    By ``notes`` what was stored is found where this is killed before the catalog is written.

    Registering a file again is a conflict, unless something of its version was damaged in the
    store: then it is repaired, and that is the result.

    Raises:
        InvalidArtifact: the model or the rows are refused.
        InvalidInput: a name or an option cannot be.
        Conflict: the version exists, the task has another signature, labels or defaults, or it was
            removed meanwhile.
        StateUnavailable: catalog or store cannot be reached.
    """
    limits = limits or RegistrationLimits()
    task_name = _task_name(request.task)  # refused now, not when the model was checked
    if request.metric is not None:
        parse_metric(request.metric)
    files = find_model_files(request.path, request.model, only=request.only)
    snapshot, meter = catalog.snapshot(), Meter(progress)
    adding = _Adding(catalog, store, snapshot, device_kinds, meter, limits, cache, scratch, notes)
    buckets = bucketed_named(snapshot.tasks, task_name)
    if request.edges.free_batch and (request.lengths is not None or buckets is not None):
        raise InvalidInput(
            "--free-batch tries rows of one length, and this model is for several: export it with"
            " any number of rows"
        )
    with work_folder(scratch) as work:
        files = tuple(with_weights(files, work, limits))
        files = tuple(in_plain_form(files, work, limits))
        if request.edges:
            files = tuple(with_edges(files, request.edges, work, limits))
        joined = next((task for task in snapshot.tasks if task.name == task_name), None)
        face, said = joined if buckets is None else buckets.buckets[-1], tuple[str, ...]()
        if request.tokenizer is not None or (face is not None and face.text is not None):
            meter.begin("check", f"reading {request.evaluation.name}")
            before = _text_before(snapshot, buckets, task_name, files[0])
            request, first, said = with_texts(
                request, files[0], face, before, catalog.tokenizer, work, limits
            )
            files = (first, *files[1:])
            said += _of_tokenizers(snapshot, buckets, request)
        parts = [(request, files)]
        if request.lengths is not None or buckets is not None:
            meter.begin("check", f"reading {request.path.name}")
            by = by_length(request, files, buckets, snapshot.versions, work, limits)
            parts = as_in_the_others(by, buckets, snapshot.versions, limits.model_mib)
        found = [adding.prepare(one, of_it, work) for one, of_it in parts]
        prepared = [one for each in found for one in each.prepared]
        known = [one.task for one in found if one.task is not None]
        nothing = [one.nothing for one in found if one.nothing is not None]
        if nothing and not prepared and not any(one.repaired for one in found):
            raise nothing[0]
        if prepared:
            names = {one.name for one in known}
            joins = all(one.registration.task.name in names for one in prepared)
            write = partial(catalog.register, joins=joins)
            commit(prepared, catalog, store, meter, write, notes, together=len(parts) > 1)
    return result_of(
        prepared,
        prepared[-1].registration.task if prepared else known[-1],
        snapshot,
        unchanged=tuple(label for one in found for label in one.unchanged),
        repaired=tuple(one for each in found for one in each.repaired),
        said=said if prepared else (),
    )


def _text_before(
    snapshot: CatalogSnapshot, buckets: BucketedTask | None, task: TaskName, file: ModelFile
) -> TextInput | None:
    """How texts become rows of the newest version of a model, where it has its own tokenizer."""
    names = {task} if buckets is None else {one.name for one in buckets.buckets}
    known = [v for v in snapshot.versions if v.task in names and v.model == file.model]
    newest = max(known, key=lambda version: version.version, default=None)
    return None if newest is None else newest.text


def _of_tokenizers(
    snapshot: CatalogSnapshot, buckets: BucketedTask | None, request: RegistrationRequest
) -> tuple[str, ...]:
    """What changes for clients where a task gets a second tokenizer."""
    own, of_task = request.own_text, request.text
    if own is None or (of_task is not None and own.tokenizer == of_task.tokenizer):
        return ()
    names = {request.task} if buckets is None else {one.name for one in buckets.buckets}
    before = [v.text for v in snapshot.versions if v.task in names and v.text is not None]
    if any(of_task is None or one.tokenizer != of_task.tokenizer for one in before):
        return ()
    return (
        f"models of task {request.task} have different tokenizers now: texts are read by each;"
        " numbers of tokens are taken only in queries that name a variant",
    )


class _Found(NamedTuple):
    """What came of a request, of which nothing is written yet."""

    task: Task | None
    """As the catalog has it, if it does."""
    prepared: list[Prepared]
    unchanged: tuple[str, ...]
    repaired: tuple[str, ...]
    nothing: "NothingNew | None" = None
    """Why nothing was prepared."""


class _Adding(NamedTuple):
    """What all requests of a registration have in common."""

    catalog: Catalog
    store: ArtifactStore
    snapshot: CatalogSnapshot
    device_kinds: Sequence[DeviceKind]
    meter: Meter
    limits: RegistrationLimits
    cache: BuildCache | None
    scratch: Path | None
    notes: StoringNotes | None

    def prepare(
        self, request: RegistrationRequest, files: Sequence[ModelFile], work: Path
    ) -> _Found:
        """Mend what is damaged of known versions, and prepare those that are new."""
        catalog, snapshot, meter, limits = self.catalog, self.snapshot, self.meter, self.limits
        task_name = _task_name(request.task)
        digests = {file: digest_of(file.path, _limit_mib(file.path, limits)) for file in files}
        preparation = preparation_for(
            request, self.device_kinds, snapshot, self.store, meter, limits, cache=self.cache
        )
        known = next((task for task in snapshot.tasks if task.name == task_name), None)
        mending = Mending(snapshot, self.store, preparation, meter, limits, self.scratch)
        repaired = mending.mend(_known(files, digests, snapshot, task_name))
        try:
            new, unchanged = _sort_out(files, digests, snapshot, task_name)
        except NothingNew as error:
            return _Found(known, [], error.labels, repaired, error)
        for file in new:
            _refuse_removed(file, digests[file], task_name, catalog)
        if self.notes is not None:  # else all would be built and measured in vain
            self.notes.ensure_room(sum(file.path.stat().st_size for file in new))
        meter.expect(len(new) * (2 + STEPS_EXPECTED))
        task, prepared = known, list[Prepared]()
        for file in new:
            stage = request.stage or _stage(file.model, task_name, snapshot, bool(prepared))
            own = request.own_text
            version = _version_of(file, digests[file], task_name, stage, catalog, own)
            folder = work / task_name / version.label
            folder.mkdir(parents=True)
            prepared.append(preparation.prepare(version, file.path, task, folder))
            task = prepared[-1].registration.task
        return _Found(known, prepared, unchanged, repaired)


def _refuse_removed(file: ModelFile, digest: Digest, task: TaskName, catalog: Catalog) -> None:
    """Refuse the number of another model that was removed now, not when all is measured.

    Raises:
        Conflict: the number of the file's folder was that of other bytes.
    """
    if file.version is not None:
        version = _version_of(file, digest, task, Stage.CANARY, catalog)
        check_number(version, catalog.removed_versions(task, file.model))


def _version_of(
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


class NothingNew(Conflict):
    """All that was handed in is registered already."""

    def __init__(self, message: str, labels: tuple[str, ...]) -> None:
        super().__init__(message)
        self.labels = labels


def _task_name(text: str) -> TaskName:
    """
    Raises:
        InvalidInput: it cannot be a task's name.
    """
    if not NAME.fullmatch(text):
        raise InvalidInput(
            f"{text[:128]!r} cannot be a task's name: lower-case letters, digits, dots, dashes "
            "and underscores can"
        )
    return TaskName(text)


def _limit_mib(path: Path, limits: RegistrationLimits) -> float:
    """An archive holds the weights twice: the program's and the ONNX's."""
    return limits.model_mib * (2 if path.suffix == ".pt2" else 1)


def _sort_out(
    files: Sequence[ModelFile],
    digests: Mapping[ModelFile, Digest],
    snapshot: CatalogSnapshot,
    task: TaskName,
) -> tuple[list[ModelFile], tuple[str, ...]]:
    """New files, and the labels of versions that are registered already with the same bytes."""
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
            raise NothingNew(message, (twin.label,))
        new.append(file)
    if not new:
        message = f"{', '.join(unchanged)}: registered already, and nothing is new"
        raise NothingNew(message, tuple(unchanged))
    return new, tuple(unchanged)


def _known(
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


def _stage(model: ModelName, task: str, snapshot: CatalogSnapshot, later: bool) -> Stage:
    """Live for a model's first version; the next ones have to prove themselves."""
    known = any((v.task, v.model) == (task, model) for v in snapshot.versions)
    return Stage.CANARY if known or later else Stage.LIVE
