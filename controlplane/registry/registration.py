"""Registering a model: check the file, build its variants, measure them, write the catalog.

The steps run in this order and each may refuse with one sentence::

    find files -> check -> read rows -> build variants -> measure -> store -> catalog

Until ``store`` nothing is written outside a temporary folder. Only what is damaged of versions that
are known already is restored before, now that their files and rows are at hand.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from controlplane.building.build_cache import BuildCache
from controlplane.building.edges import as_served
from controlplane.building.family import digest_of
from controlplane.building.meter import Meter
from controlplane.building.texts import WithTexts, with_texts
from controlplane.building.types import (
    Prepared,
    Progress,
    RegistrationLimits,
    RegistrationRequest,
    RegistrationResult,
)
from controlplane.building.work_folder import work_folder
from controlplane.registry.buckets import Part, as_in_the_others, by_length
from controlplane.registry.new_versions import (
    known_of,
    refuse_removed,
    sort_out,
    stage_of,
    version_of,
)
from controlplane.registry.preparation import STEPS_EXPECTED, preparation_for
from controlplane.registry.repairing import Mending
from controlplane.registry.storing import commit, result_of
from variants.artifacts.protocol import ArtifactStore
from variants.artifacts.storing_notes import StoringNotes
from variants.buckets import BucketedTask, bucketed_named
from variants.catalog.protocol import Catalog
from variants.catalog.validity.plain_values import check_name
from variants.errors import Conflict, InvalidInput
from variants.metrics.metric import parse_metric
from variants.model_files import ModelFile, find_model_files
from variants.types import (
    CatalogSnapshot,
    DeviceKind,
    ModelVersion,
    Task,
    TaskName,
)


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
    if cache is not None:
        cache.begin()
    task_name = _task_name(request.task)  # refused now, not when the model was checked
    if request.metric is not None:
        parse_metric(request.metric)
    files = find_model_files(request.path, request.model, only=request.only)
    snapshot = catalog.snapshot()
    adding = _Adding(
        catalog=catalog,
        store=store,
        snapshot=snapshot,
        buckets=bucketed_named(snapshot.tasks, task_name),
        device_kinds=device_kinds,
        meter=Meter(progress),
        limits=limits,
        cache=cache,
        scratch=scratch,
        notes=notes,
    )
    adding.check_batch(request)
    with work_folder(scratch) as work:
        files = as_served(files, request.edges, work, limits)
        request, files, said = adding.with_numbers(request, files, work)
        parts = adding.by_length(request, files, work)
        found = [adding.prepare(part.request, part.files, work) for part in parts]
        prepared = [one for each in found for one in each.prepared]
        if prepared:
            adding.write(prepared, found)
        else:
            _refuse_nothing_new(found)
    known = [one.task for one in found if one.task is not None]
    return result_of(
        prepared,
        prepared[-1].registration.task if prepared else known[-1],
        snapshot,
        unchanged=tuple(label for one in found for label in one.unchanged),
        repaired=tuple(one for each in found for one in each.repaired),
        said=said if prepared else (),
    )


class _Found(NamedTuple):
    """What came of a request, of which nothing is written yet."""

    task: Task | None
    """As the catalog has it, if it does."""
    prepared: list[Prepared]
    unchanged: tuple[str, ...]
    repaired: tuple[str, ...]
    nothing_new: Conflict | None = None
    """Why nothing was prepared."""


class _Adding(NamedTuple):
    """The steps of a registration, and what all of them need."""

    catalog: Catalog
    store: ArtifactStore
    snapshot: CatalogSnapshot
    buckets: BucketedTask | None
    """Those that the task has, if it is for rows of several lengths."""
    device_kinds: Sequence[DeviceKind]
    meter: Meter
    limits: RegistrationLimits
    cache: BuildCache | None
    scratch: Path | None
    notes: StoringNotes | None

    def of_several_lengths(self, request: RegistrationRequest) -> bool:
        """Whether the model becomes one for each of a few lengths of rows."""
        return request.lengths is not None or self.buckets is not None

    def check_batch(self, request: RegistrationRequest) -> None:
        """
        Raises:
            InvalidInput: its number of rows is to be made free, which cannot be tried.
        """
        if request.edges.free_batch and self.of_several_lengths(request):
            raise InvalidInput(
                "--free-batch tries rows of one length, and this model is for several: export it"
                " with any number of rows"
            )

    def with_numbers(
        self, request: RegistrationRequest, files: tuple[ModelFile, ...], work: Path
    ) -> WithTexts:
        """The request and its files with rows of numbers, where they were given as texts."""
        known = self._task(request.task) if self.buckets is None else self.buckets.buckets[-1]
        if request.tokenizer is None and (known is None or known.text is None):
            return WithTexts(request, files, ())
        self.meter.begin("check", f"reading {request.evaluation.name}")
        of_task = self._versions_of(request.task)
        same_model = [one for one in of_task if one.model == files[0].model]
        newest = max(same_model, key=lambda version: version.version, default=None)
        made = with_texts(
            request, files[0], known, None if newest is None else newest.text,
            self.catalog.tokenizer, work, self.limits,
        )  # fmt: skip
        return made._replace(said=(*made.said, *_of_tokenizers(of_task, made.request)))

    def by_length(
        self, request: RegistrationRequest, files: tuple[ModelFile, ...], work: Path
    ) -> list[Part]:
        """What is registered for each length of rows; all as it is where these have one length."""
        if not self.of_several_lengths(request):
            return [Part(request, files)]
        self.meter.begin("check", f"reading {request.path.name}")
        versions, buckets = self.snapshot.versions, self.buckets
        parts = by_length(request, files, buckets, versions, work, self.limits)
        return as_in_the_others(parts, buckets, versions, self.limits.model_mib)

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
        known = self._task(task_name)
        mending = Mending(snapshot, self.store, preparation, meter, limits, self.scratch)
        repaired = mending.mend(known_of(files, digests, snapshot, task_name))
        new, unchanged, nothing_new = sort_out(files, digests, snapshot, task_name)
        if nothing_new is not None:
            return _Found(known, [], unchanged, repaired, nothing_new)
        for file in new:
            refuse_removed(file, digests[file], task_name, catalog)
        if self.notes is not None:  # else all would be built and measured in vain
            self.notes.ensure_room(sum(file.path.stat().st_size for file in new))
        meter.expect(len(new) * (2 + STEPS_EXPECTED))
        task, prepared = known, list[Prepared]()
        for file in new:
            stage = stage_of(request, file.model, task_name, snapshot, bool(prepared))
            own = request.own_text
            version = version_of(file, digests[file], task_name, stage, catalog, own)
            folder = work / task_name / version.label
            folder.mkdir(parents=True)
            prepared.append(preparation.prepare(version, file.path, task, folder))
            task = prepared[-1].registration.task
        return _Found(known, prepared, unchanged, repaired)

    def write(self, prepared: Sequence[Prepared], found: Sequence[_Found]) -> None:
        """Store what was prepared and write the catalog; the buckets of a task all at once."""
        known = {one.task.name for one in found if one.task is not None}
        joins = all(one.registration.task.name in known for one in prepared)
        write = partial(self.catalog.register, joins=joins)
        together = len(found) > 1
        commit(prepared, self.catalog, self.store, self.meter, write, self.notes, together=together)

    def _task(self, name: str) -> Task | None:
        return next((task for task in self.snapshot.tasks if task.name == name), None)

    def _versions_of(self, task: str) -> list[ModelVersion]:
        """Of a task, or of all its buckets."""
        names = {task} if self.buckets is None else {one.name for one in self.buckets.buckets}
        return [version for version in self.snapshot.versions if version.task in names]


def _of_tokenizers(known: Sequence[ModelVersion], request: RegistrationRequest) -> tuple[str, ...]:
    """What changes for clients where a task, of which some versions are known, gets a second
    tokenizer."""
    own, of_task = request.own_text, request.text
    if own is None or (of_task is not None and own.tokenizer == of_task.tokenizer):
        return ()
    before = [version.text for version in known if version.text is not None]
    if any(of_task is None or one.tokenizer != of_task.tokenizer for one in before):
        return ()
    return (
        f"models of task {request.task} have different tokenizers now: texts are read by each;"
        " numbers of tokens are taken only in queries that name a variant",
    )


def _refuse_nothing_new(found: Sequence[_Found]) -> None:
    """
    Raises:
        Conflict: all that was handed in is registered already, and nothing of it was repaired.
    """
    reasons = [one.nothing_new for one in found if one.nothing_new is not None]
    if reasons and not any(one.repaired for one in found):
        raise reasons[0]


def _task_name(text: str) -> TaskName:
    """
    Raises:
        InvalidInput: it cannot be a task's name.
    """
    check_name(text, "a task")
    return TaskName(text)


def _limit_mib(path: Path, limits: RegistrationLimits) -> float:
    """An archive holds the weights twice: the program's and the ONNX's."""
    return limits.model_mib * (2 if path.suffix == ".pt2" else 1)
