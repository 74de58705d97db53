"""Preparing one model version: check the file, build its variants, measure them.

All that touches the model's code runs in a sandboxed child process. Nothing is written outside the
folder that is given.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from controlplane.building.build_cache import BuildCache
from controlplane.building.digests import copied
from controlplane.building.doubt import doubt
from controlplane.building.family import REFERENCE, Building, BuiltVariant, kinds_to_build
from controlplane.building.meter import Meter
from controlplane.building.sources import Sources
from controlplane.building.types import (
    QUICK_CALIBRATION_ROWS,
    QUICK_ROWS,
    Prepared,
    RegistrationLimits,
    RegistrationRequest,
    Reused,
    SkippedVariant,
    Thoroughness,
)
from controlplane.profiling.configurations import History, history_of
from controlplane.profiling.measuring import STEPS_PER_KIND, Measured, Measuring
from controlplane.profiling.workbench import Workbench
from controlplane.registry.joined_task import joined_task, other_classes
from profiler.evaluation.labelled_rows import LabelledRows, read_task_rows, split_for_calibration
from profiler.sandbox.calls import tensor_specs
from profiler.sandbox.sandbox import Sandbox
from variants.artifacts.protocol import ArtifactStore
from variants.buckets import positions_axis
from variants.builders.registry import make_builder, variant_name
from variants.catalog.validity.texts import tokenizers_of
from variants.checks.onnx_check import OnnxInfo
from variants.errors import InvalidArtifact, InvalidInput, VariantNotLoadable
from variants.texts.inputs import digest_of_text
from variants.types import (
    CatalogSnapshot,
    DeviceKind,
    DeviceKindName,
    ModelVersion,
    Registration,
    Task,
    TextInput,
)

STEPS_EXPECTED = 6
"""Builds and measurements that are expected of a version before it is known what can be built."""


class Preparation:
    """Prepares versions for one request, on the machine's device kinds."""

    def __init__(
        self,
        request: RegistrationRequest,
        device_kinds: tuple[DeviceKind, ...],
        meter: Meter,
        limits: RegistrationLimits,
        *,
        teacher: Path | None = None,
        built: frozenset[str] = frozenset(),
        history: Mapping[DeviceKindName, History] | None = None,
        cache: BuildCache | None = None,
    ) -> None:
        """
        Args:
            teacher: a model of the task that others may learn from, as ONNX.
            built: names of variants that there are already.
            history: what was measured of other models, by device kind.
            cache: has what was built and measured before, and gets what is now.
        """
        self._request = request
        self._kinds = device_kinds
        self._meter = meter
        self._limits = limits
        self._teacher = teacher
        self._there = built
        self._history = history or {}
        self._cache = cache

    def prepare(
        self, version: ModelVersion, source: Path, known: Task | None, folder: Path
    ) -> Prepared:
        """Check, build and measure one new version.

        Args:
            source: the model's file. It is copied, and only the copy counts: the original may
                change while it is read.
            known: the task that the version joins; None makes a new one.
            folder: for everything that is written.

        Raises:
            InvalidArtifact: the model or the rows are refused.
            InvalidInput: an option of the request does not fit the model.
            Conflict: the task has another signature, labels, metric or defaults.
        """
        copy = folder / source.name
        if copied(source, copy) != version.source:
            raise InvalidArtifact(f"{source.name} changed while it was read")
        self._meter.begin("check", f"checking {source.name}")
        info, onnx = checked(version, copy, folder, self._limits)
        task = joined_task(self._request, info, known, where=source.name)
        prepared = self._prepared(version, task, copy, onnx, first=(copy,))
        said = (prepared.doubt, other_classes(info, task, source.name))
        return replace(prepared, doubt="; ".join(filter(None, said)))

    def extend(
        self, version: ModelVersion, source: Path, task: Task, folder: Path, reference: BuiltVariant
    ) -> Prepared:
        """Build and measure more variants of a registered version.

        Args:
            source: the version's source in the store, which is copied.
            reference: the model itself as a variant, which the new ones are compared with. It is
                not built again.

        Raises:
            InvalidArtifact: the source or the rows are refused.
        """
        copy = folder / f"source.{version.format}"
        if copied(source, copy) != version.source:
            raise InvalidArtifact(f"{version.label}: its source in the store is damaged")
        self._meter.begin("check", f"checking {version.label}")
        _, onnx = checked(version, copy, folder, self._limits)
        return self._prepared(version, task, copy, onnx, reference=reference)

    def _prepared(
        self,
        version: ModelVersion,
        task: Task,
        copy: Path,
        onnx: Path,
        *,
        first: tuple[Path, ...] = (),
        reference: BuiltVariant | None = None,
    ) -> Prepared:
        """The version with what was built and measured; ``first`` are files to store before."""
        rows, sources = self.sources(task, copy, onnx)
        built, skipped = self._build(version, sources, copy.parent)
        measured, not_measured, suspicion = self._measure(built, task, rows, copy.parent, reference)
        variants = {one.variant.name: one.variant for one in measured}
        registration = Registration(
            task=task,
            version=version,
            variants=tuple(variants.values()),
            profiles=tuple(one.profile for one in measured),
            device_kinds=self._kinds,
            tokenizer=self._tokenizer(version, task),
        )
        known = dict.fromkeys(one.variant.name for one in measured if one.known)
        return Prepared(
            registration=registration,
            artifacts=(*first, *dict.fromkeys(one.path for one in measured)),
            skipped=(*skipped, *not_measured),
            doubt=doubt(version.label, task, variants.values(), rows, suspicion),
            reused=Reused(
                built=tuple(one.variant.name for one in built if one.known), measured=tuple(known)
            ),
        )

    def _tokenizer(self, version: ModelVersion, task: Task) -> bytes | None:
        """The tokenizer that came with the request, where the version or its task names it."""
        data = self._request.tokenizer_data
        if data is None or digest_of_text(data) not in tokenizers_of([task], [version]):
            return None
        return data

    def _build(
        self, version: ModelVersion, sources: Sources, folder: Path
    ) -> tuple[list[BuiltVariant], list[SkippedVariant]]:
        """Build what the request asks for, into a folder."""
        gpu = any(kind.gpu is not None for kind in self._kinds)
        chosen, left_out = kinds_to_build(self._request.kinds, sources.has, gpu=gpu)
        there = self._there
        chosen = [k for k in chosen if variant_name(version.model, version.version, k) not in there]
        self._meter.expect(len(chosen) * (1 + STEPS_PER_KIND * len(self._kinds)) - STEPS_EXPECTED)
        skipped = [
            SkippedVariant(name=variant_name(version.model, version.version, kind), reason=reason)
            for kind, reason in left_out
        ]
        building = Building(version, sources, folder, self._limits, self._cache)
        built, not_built = building.build(chosen, self._meter)
        return built, [*skipped, *not_built]

    def sources(self, task: Task, copy: Path, onnx: Path) -> tuple[LabelledRows, Sources]:
        """The rows to judge with, and all that builders may draw on.

        Raises:
            InvalidArtifact: rows are refused.
        """
        rows, calibration = self._rows(task)
        training = self._training(task, rows)
        if self._request.quick:
            rows = rows.sample(QUICK_ROWS)
            calibration = calibration.sample(QUICK_CALIBRATION_ROWS)
        return rows, Sources(
            onnx=onnx,
            program=None if onnx == copy else copy,
            calibration=calibration,
            training=training,
            teacher=self._larger(onnx),
            floor=task.slo.accuracy,
            metric=task.metric,
            judged_output=task.outputs[0].name,
            along=positions_axis(task),
            bucket=task.bucket,
        )

    def _larger(self, onnx: Path) -> Path | None:
        """The teacher, if its file is larger than that of the model that is to learn."""
        teacher = self._teacher
        if teacher is None or teacher.stat().st_size <= onnx.stat().st_size:
            return None
        return teacher

    def _rows(self, task: Task) -> tuple[LabelledRows, LabelledRows]:
        """Evaluation rows and calibration rows of a task; no row is in both."""
        request = self._request
        rows = read_task_rows(request.evaluation, task)
        if request.calibration is None:
            calibration, rows = split_for_calibration(rows, request.evaluation)
            return rows, calibration
        calibration = read_task_rows(request.calibration, task, unlabelled=True)
        return rows, _unseen(
            calibration, rows, request.calibration, "measure what they have shaped"
        )

    def _training(self, task: Task, rows: LabelledRows) -> LabelledRows | None:
        """Rows to train on, if there are any; no evaluation row is among them."""
        path = self._request.training
        if path is None:
            return None
        training = read_task_rows(path, task)
        return _unseen(training, rows, path, "be measured on what it has learnt by heart")

    def _measure(
        self,
        built: list[BuiltVariant],
        task: Task,
        rows: LabelledRows,
        folder: Path,
        reference: BuiltVariant | None,
    ) -> tuple[list[Measured], list[SkippedVariant], str]:
        """Profiles on every device kind; accuracy comes from the first that can run a variant. And
        what would make the model better, in a clause."""
        request = self._request
        thoroughness = request.measure
        if request.quick and thoroughness is Thoroughness.AUTO:
            thoroughness = Thoroughness.SAMPLED
        data = folder / "rows.npz"
        rows.save(data)
        digest = "" if self._cache is None else rows.digest
        measured: list[Measured] = []
        skipped: dict[str, SkippedVariant] = {}
        suspicion = ""
        for kind in self._kinds:
            fitting = [one for one in built if make_builder(one.kind).gpu == (kind.gpu is not None)]
            with Workbench(task, kind, data, self._limits, cache=self._cache, rows=digest) as bench:
                measuring = Measuring(
                    bench,
                    self._meter,
                    folder,
                    limits=self._limits.measure,
                    thoroughness=thoroughness,
                    history=self._history.get(kind.name),
                    fewer_threads=request.threads and not request.quick,
                )
                if reference is not None:
                    measuring.compare_with(reference)
                found, failed = measuring.measure(fitting, [one.variant for one in measured])
            measured += found
            suspicion = suspicion or measuring.suspicion
            skipped |= {one.name: one for one in failed}
        return measured, list(skipped.values()), suspicion


def preparation_for(
    request: RegistrationRequest,
    device_kinds: Sequence[DeviceKind],
    snapshot: CatalogSnapshot,
    store: ArtifactStore,
    meter: Meter,
    limits: RegistrationLimits,
    *,
    extended: ModelVersion | None = None,
    cache: BuildCache | None = None,
) -> Preparation:
    """A preparation that knows what the catalog has: a teacher, and what was measured before.

    Args:
        extended: the version that gets more variants, if it is registered already. Its own
            variants are not built again, and its own measurements are not learned from.
        cache: has what was built and measured before, and gets what is now.

    Raises:
        InvalidInput: there is no CPU among the device kinds.
    """
    kinds = tuple(sorted(device_kinds, key=lambda kind: kind.gpu is not None))
    if not kinds or kinds[0].gpu is not None:
        raise InvalidInput(
            "there is no CPU device kind: a model's own answers, with which those of its variants "
            "are compared, are computed on one; add a slice such as 1xcpu-1 to MODELLESS_SLICES"
        )
    own = "" if extended is None else extended.label
    there = (v for v in snapshot.variants if (v.task, v.model_version) == (request.task, own))
    return Preparation(
        request,
        kinds,
        meter,
        limits,
        teacher=_teacher(
            request.task, request.own_text if extended is None else extended.text, snapshot, store
        ),
        built=frozenset(variant.name for variant in there),
        history={kind.name: history_of(snapshot, kind, but=own) for kind in kinds},
        cache=cache,
    )


def _teacher(
    task: str, own_text: TextInput | None, snapshot: CatalogSnapshot, store: ArtifactStore
) -> Path | None:
    """The task's most accurate model as it was handed in; None when there is none.

    Args:
        own_text: of the version that is to learn: it learns from those that read the same numbers.
    """
    alike = {v.label for v in snapshot.versions if v.task == task and v.text == own_text}
    known = [
        v
        for v in snapshot.variants
        if v.task == task and v.name.endswith(f"-{REFERENCE}") and v.model_version in alike
    ]
    best = max(known, key=lambda variant: (variant.accuracy, variant.name), default=None)
    if best is None:
        return None
    with suppress(VariantNotLoadable):  # damaged; a variant less is no reason to refuse a model
        return store.sound(best.artifact)
    return None


def checked(
    version: ModelVersion, copy: Path, folder: Path, limits: RegistrationLimits
) -> tuple[OnnxInfo, Path]:
    """What a model says of itself, and its ONNX: the file, or what an archive carries, which is
    written into ``folder``.

    Raises:
        InvalidArtifact: it is refused.
    """
    onnx = copy if copy.suffix != ".pt2" else folder / "source.onnx"
    with Sandbox(limits.trial) as sandbox:
        found = sandbox.call(
            "check",
            {
                "path": str(copy),
                "size_mib": limits.model_mib,
                "onnx": "" if onnx == copy else str(onnx),
            },
            subject=version.label,
        )
    return _info(found), onnx


def _info(values: dict[str, Any]) -> OnnxInfo:
    return OnnxInfo(
        inputs=tensor_specs(values["inputs"]),
        outputs=tensor_specs(values["outputs"]),
        opset=values["opset"],
        parameters=values["parameters"],
        size_bytes=values["size_bytes"],
        classes=tuple(values["classes"]),
        uneven=tuple(values["uneven"]),
    )


def _unseen(
    others: LabelledRows, evaluation: LabelledRows, path: Path, consequence: str
) -> LabelledRows:
    """Those of ``others`` that are not among the evaluation rows; data sets often repeat rows.

    Raises:
        InvalidArtifact: none is left.
    """
    kept = others.without(evaluation)
    if not len(kept):
        raise InvalidArtifact(
            f"{path.name}: all its rows are evaluation rows, which would {consequence}"
        )
    return kept
