"""Preparing one model version: check the file, build its variants, measure them.

All that touches the model's code runs in a sandboxed child process. Nothing is written outside the
folder that is given.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from controlplane.building import Building, BuiltVariant, Sources, kinds_to_build
from controlplane.measuring import STEPS_PER_KIND, History, Measured, Measuring
from controlplane.meter import Meter
from controlplane.registration_types import (
    Prepared,
    RegistrationLimits,
    RegistrationRequest,
    SkippedVariant,
)
from controlplane.workbench import Workbench
from profiler.accuracy import METRICS
from profiler.child import tensor_specs
from profiler.evaluation import LabelledRows, read_rows, split_for_calibration
from profiler.sandbox import Sandbox, SandboxLimits
from variants.builders import make_builder, variant_name
from variants.errors import Conflict, InvalidArtifact, InvalidInput
from variants.onnx_check import OnnxInfo, check_signature, describe
from variants.types import (
    DeviceKind,
    DeviceKindName,
    Digest,
    ModelVersion,
    Registration,
    Slo,
    Task,
    TaskName,
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
    ) -> None:
        """
        Args:
            teacher: a model of the task that others may learn from, as ONNX.
            built: names of variants that there are already.
            history: what was measured of other models, by device kind.
        """
        self._request = request
        self._kinds = device_kinds
        self._meter = meter
        self._limits = limits
        self._teacher = teacher
        self._there = built
        self._history = history or {}

    def prepare(
        self, version: ModelVersion, source: Path, known: Task | None, folder: Path
    ) -> Prepared:
        """Check, build and measure one version."""
        # From here on only the copy counts: the original may change under our hands.
        copy = folder / source.name
        if _copy(source, copy) != version.source:
            raise InvalidArtifact(f"{source.name}: changed while it was read")
        self._meter.begin("check", f"checking {source.name}")
        info, onnx = self._check(version, copy, folder)
        task = _task(self._request, info, known, where=source.name)
        measured, skipped = self._family(version, task, copy, onnx, folder)
        variants = {one.variant.name: one.variant for one in measured}
        registration = Registration(
            task=task,
            version=version,
            variants=tuple(variants.values()),
            profiles=tuple(one.profile for one in measured),
            device_kinds=self._kinds,
        )
        return Prepared(
            registration=registration,
            artifacts=(copy, *dict.fromkeys(one.path for one in measured)),
            skipped=skipped,
        )

    def extend(
        self,
        version: ModelVersion,
        source: Path,
        task: Task,
        folder: Path,
        known: BuiltVariant,
    ) -> Prepared:
        """Build and measure more variants of a registered version.

        ``known`` is the model itself as a variant, which the new ones are compared with.
        """
        copy = folder / f"source.{version.format}"
        if _copy(source, copy) != version.source:
            raise InvalidArtifact(f"{version.label}: its source in the store is damaged")
        self._meter.begin("check", f"checking {version.label}")
        _, onnx = self._check(version, copy, folder)
        measured, skipped = self._family(version, task, copy, onnx, folder, known)
        variants = {one.variant.name: one.variant for one in measured}
        registration = Registration(
            task=task,
            version=version,
            variants=tuple(variants.values()),
            profiles=tuple(one.profile for one in measured),
            device_kinds=self._kinds,
        )
        return Prepared(
            registration=registration,
            artifacts=tuple(dict.fromkeys(one.path for one in measured)),
            skipped=skipped,
        )

    def _family(
        self,
        version: ModelVersion,
        task: Task,
        copy: Path,
        onnx: Path,
        folder: Path,
        known: BuiltVariant | None = None,
    ) -> tuple[list[Measured], tuple[SkippedVariant, ...]]:
        """Build what the request wants and measure it; ``known`` is not built again."""
        rows, calibration = self._rows(task)
        data = folder / "rows.npz"
        rows.save(data)
        sources = Sources(
            onnx=onnx,
            program=None if onnx == copy else copy,
            calibration=calibration,
            training=self._training(task, rows),
            teacher=self._larger(onnx),
            floor=task.slo.accuracy,
        )
        gpu = any(kind.gpu is not None for kind in self._kinds)
        chosen, left_out = kinds_to_build(self._request.kinds, sources.has, gpu=gpu)
        there = self._there
        chosen = [k for k in chosen if variant_name(version.model, version.version, k) not in there]
        self._meter.expect(len(chosen) * (1 + STEPS_PER_KIND * len(self._kinds)) - STEPS_EXPECTED)
        skipped = [
            SkippedVariant(name=variant_name(version.model, version.version, kind), reason=reason)
            for kind, reason in left_out
        ]
        built, not_built = Building(version, sources, folder, self._limits).build(
            chosen, self._meter
        )
        measured, not_measured = self._measure(built, task, data, known)
        return measured, (*skipped, *not_built, *not_measured)

    def _larger(self, onnx: Path) -> Path | None:
        """The teacher, if there is more to it than to the model that is to learn."""
        teacher = self._teacher
        if teacher is None or teacher.stat().st_size <= onnx.stat().st_size:
            return None
        return teacher

    def _check(self, version: ModelVersion, copy: Path, folder: Path) -> tuple[OnnxInfo, Path]:
        """What the model says of itself, and its ONNX: the file, or what an archive carries."""
        onnx = copy if copy.suffix != ".pt2" else folder / "source.onnx"
        with Sandbox(
            SandboxLimits(memory_mib=self._limits.trial_mib, time_s=self._limits.trial_s)
        ) as sandbox:
            found = sandbox.call(
                "check",
                {
                    "path": str(copy),
                    "size_mib": self._limits.model_mib,
                    "onnx": "" if onnx == copy else str(onnx),
                },
                subject=version.label,
            )
        return _info(found), onnx

    def _rows(self, task: Task) -> tuple[LabelledRows, LabelledRows]:
        """Evaluation rows and calibration rows; no row is in both."""
        request = self._request
        classes = task.outputs[0].shape[0]
        rows = read_rows(request.evaluation, task.inputs, classes=classes)
        if request.calibration is None:
            calibration, rows = split_for_calibration(rows, request.evaluation)
            return rows, calibration
        calibration = read_rows(request.calibration, task.inputs, classes=classes, unlabelled=True)
        return rows, _unseen(
            calibration, rows, request.calibration, "measure what they have shaped"
        )

    def _training(self, task: Task, rows: LabelledRows) -> LabelledRows | None:
        """Rows to train on, if there are any; no evaluation row is among them."""
        path = self._request.training
        if path is None:
            return None
        training = read_rows(path, task.inputs, classes=task.outputs[0].shape[0])
        return _unseen(training, rows, path, "be measured on what it has learnt by heart")

    def _measure(
        self, built: list[BuiltVariant], task: Task, data: Path, known: BuiltVariant | None
    ) -> tuple[list[Measured], list[SkippedVariant]]:
        """Profiles on every device kind; accuracy comes from the first that can run a variant."""
        measured: list[Measured] = []
        skipped: dict[str, SkippedVariant] = {}
        for kind in self._kinds:
            fitting = [one for one in built if make_builder(one.kind).gpu == (kind.gpu is not None)]
            with Workbench(task, kind, data, self._limits) as bench:
                measuring = Measuring(
                    bench,
                    self._meter,
                    data.parent,
                    limits=self._limits.measure,
                    thoroughness=self._request.measure,
                    history=self._history.get(kind.name),
                    fewer_threads=self._request.threads,
                )
                if known is not None:
                    measuring.compare_with(known)
                found, failed = measuring.measure(fitting, [one.variant for one in measured])
            measured += found
            skipped |= {one.name: one for one in failed}
        return measured, list(skipped.values())


def _task(request: RegistrationRequest, info: OnnxInfo, known: Task | None, *, where: str) -> Task:
    """The task that a model joins: the known one, or a new one with the model's own signature."""
    if known is not None:
        check_signature(info, known, where=where)
        for what, given, has in (
            ("labels", request.labels, known.labels),
            ("metric", request.metric, known.metric),
            ("defaults", request.slo, known.slo),
        ):
            if given is not None and given != has:
                raise Conflict(f"task {known.name!r} exists with other {what}")
        return known
    metric = request.metric or "top1"
    if metric not in METRICS:
        known_metrics = ", ".join(sorted(METRICS))
        raise InvalidInput(f"there is no metric {metric!r}; there are: {known_metrics}")
    scores = info.outputs[0]
    if len(scores.shape) != 1 or scores.shape[0] < 2 or not scores.dtype.startswith("float"):
        raise InvalidArtifact(
            f"{where}: its first output must be scores, float [batch, classes], "
            f"but is {describe(scores)}"
        )
    labels = request.labels or ()
    if labels and len(labels) != scores.shape[0]:
        raise InvalidInput(
            f"{len(labels)} labels were given, but output {scores.name!r} of {where} has "
            f"{scores.shape[0]} classes"
        )
    if len(set(labels)) != len(labels):
        raise InvalidInput("a label is given twice")
    return Task(
        name=TaskName(request.task),
        inputs=info.inputs,
        outputs=info.outputs,
        labels=labels,
        metric=metric,
        slo=request.slo or Slo(),
    )


def _info(values: dict[str, Any]) -> OnnxInfo:
    return OnnxInfo(
        inputs=tensor_specs(values["inputs"]),
        outputs=tensor_specs(values["outputs"]),
        opset=values["opset"],
        parameters=values["parameters"],
        size_bytes=values["size_bytes"],
    )


def _unseen(
    others: LabelledRows, evaluation: LabelledRows, path: Path, consequence: str
) -> LabelledRows:
    """The rows that are no evaluation rows; data sets often repeat themselves.

    Raises:
        InvalidArtifact: none is left.
    """

    def keys(rows: LabelledRows) -> list[bytes]:
        arrays = [rows.inputs[name] for name in sorted(rows.inputs)]
        return [b"".join(array[i].tobytes() for array in arrays) for i in range(len(rows))]

    seen = set(keys(evaluation))
    kept = [index for index, key in enumerate(keys(others)) if key not in seen]
    if not kept:
        raise InvalidArtifact(
            f"{path.name}: all its rows are evaluation rows, which would {consequence}"
        )
    return others.take(np.array(kept, dtype=np.int64))


def _copy(source: Path, target: Path) -> Digest:
    digest = hashlib.sha256()
    with source.open("rb") as reader, target.open("wb") as writer:
        while piece := reader.read(1 << 20):
            digest.update(piece)
            writer.write(piece)
    return Digest(digest.hexdigest())
