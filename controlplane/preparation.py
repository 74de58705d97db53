"""Preparing one model version: check the file, build its variants, measure them.

All that touches the model's code runs in a sandboxed child process. Nothing is written outside the
folder that is given.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from controlplane.profiling import profile_variant
from controlplane.registration_types import (
    Prepared,
    RegistrationLimits,
    RegistrationRequest,
    SkippedVariant,
)
from profiler.accuracy import METRICS
from profiler.child import tensor_specs
from profiler.evaluation import LabelledRows, read_rows, split_for_calibration
from profiler.sandbox import Sandbox, SandboxLimits
from variants.builders import BUILDERS, make_builder, variant_name
from variants.errors import Conflict, InvalidArtifact, InvalidInput
from variants.onnx_check import OnnxInfo, check_file, check_signature, describe
from variants.types import (
    DeviceKind,
    Digest,
    ModelVersion,
    Profile,
    Registration,
    Slo,
    Task,
    TaskName,
    Variant,
)

Step = Callable[[str, str, bool], None]
"""Told of a step, its message, and whether it is a new one."""


def steps_per_version(device_kinds: int) -> int:
    """How many new steps preparing one version announces."""
    return 1 + len(BUILDERS) * (1 + device_kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Built:
    """A variant that was built and is about to be measured."""

    kind: str
    variant: Variant
    path: Path


class Preparation:
    """Prepares versions for one request, on the machine's device kinds."""

    def __init__(
        self,
        request: RegistrationRequest,
        device_kinds: tuple[DeviceKind, ...],
        step: Step,
        limits: RegistrationLimits,
    ) -> None:
        self._request = request
        self._kinds = device_kinds
        self._step = step
        self._limits = limits
        self._sandbox_limits = SandboxLimits(memory_mib=limits.trial_mib, time_s=limits.trial_s)
        self._skipped: list[SkippedVariant] = []

    def prepare(
        self, version: ModelVersion, source: Path, known: Task | None, folder: Path
    ) -> Prepared:
        """Check, build and measure one version."""
        # From here on only the copy counts: the original may change under our hands.
        copy = folder / source.name
        if _copy(source, copy) != version.source:
            raise InvalidArtifact(f"{source.name}: changed while it was read")
        self._skipped = []
        with Sandbox(self._sandbox_limits) as sandbox:
            self._step("check", f"checking {source.name}", True)
            info = _info(
                sandbox.call(
                    "check",
                    {"path": str(copy), "size_mib": self._limits.model_mib},
                    subject=version.label,
                )
            )
            task = _task(self._request, info, known, where=source.name)
            rows, calibration = self._rows(task)
            data, calibration_data = folder / "rows.npz", folder / "calibration.npz"
            rows.save(data)
            calibration.save(calibration_data)
            built = self._build(sandbox, version, copy, calibration_data, folder)
        variants: list[Variant] = []
        profiles: list[Profile] = []
        paths: list[Path] = [copy]
        for one in built:
            try:
                variant, profiled = self._measure(one, task, data, len(rows))
            except InvalidArtifact as error:
                self._skip(one.kind, one.variant.name, error)
                continue
            variants.append(variant)
            profiles += profiled
            paths.append(one.path)
        registration = Registration(
            task=task,
            version=version,
            variants=tuple(variants),
            profiles=tuple(profiles),
            device_kinds=self._kinds,
        )
        return Prepared(
            registration=registration, artifacts=tuple(paths), skipped=tuple(self._skipped)
        )

    def _rows(self, task: Task) -> tuple[LabelledRows, LabelledRows]:
        """Evaluation rows and calibration rows; no row is in both."""
        request = self._request
        rows = read_rows(request.evaluation, task.inputs, classes=task.outputs[0].shape[0])
        if request.calibration is None:
            calibration, rows = split_for_calibration(rows, request.evaluation)
            return rows, calibration
        calibration = read_rows(request.calibration, task.inputs)
        unseen = _rows_not_in(rows, calibration)
        if not len(unseen):
            raise InvalidArtifact(
                f"{request.calibration.name}: all its rows are evaluation rows, "
                "which would measure what they have shaped"
            )
        return rows, unseen

    def _build(
        self, sandbox: Sandbox, version: ModelVersion, source: Path, data: Path, folder: Path
    ) -> list[_Built]:
        built: list[_Built] = []
        for kind in BUILDERS:
            name = variant_name(version.model, version.version, kind)
            target = folder / f"{kind}.onnx"
            self._step("build", f"building {name}", True)
            builder = make_builder(kind)
            try:
                sandbox.call(
                    "build",
                    {
                        "kind": kind,
                        "source": str(source),
                        "target": str(target),
                        "calibration": str(data),
                        "program": "",
                        "training": "",
                        "teacher": "",
                        "floor": None,
                    },
                    subject=name,
                )
            except InvalidArtifact as error:
                self._skip(kind, name, error)
                continue
            size = check_file(target, limit_mib=2 * self._limits.model_mib)
            variant = Variant(
                task=version.task,
                name=name,
                model=version.model,
                version=version.version,
                runtime=builder.runtime,
                precision=builder.precision,
                artifact=digest_of(target, 2 * self._limits.model_mib),
                size_bytes=size,
                accuracy=0.0,
                accuracy_rows=0,
            )
            built.append(_Built(kind=kind, variant=variant, path=target))
        return built

    def _skip(self, kind: str, name: str, error: InvalidArtifact) -> None:
        """Go on without a variant. The first kind is the model itself: it cannot be missing."""
        if kind == next(iter(BUILDERS)):
            raise InvalidArtifact(error.message) from error
        reason = error.message.removeprefix(f"{name}: ")
        self._skipped.append(SkippedVariant(name=name, reason=reason))

    def _measure(
        self, built: _Built, task: Task, data: Path, rows: int
    ) -> tuple[Variant, list[Profile]]:
        """The variant with its accuracy, and its profile on every device kind."""
        variant = built.variant
        profiles: list[Profile] = []
        for kind in self._kinds:
            message = f"measuring {variant.name} on {kind.name}"
            self._step("measure", message, True)
            profile, accuracy = profile_variant(
                variant,
                task,
                built.path,
                kind,
                data,
                self._limits,
                labelled=not profiles,
                announce=self._teller("measure", message),
            )
            if accuracy is not None:
                variant = replace(variant, accuracy=accuracy, accuracy_rows=rows)
            profiles.append(profile)
        return variant, profiles

    def _teller(self, step: str, message: str) -> Callable[[str], None]:
        return lambda text: self._step(step, f"{message}: {text}", False)


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


def _rows_not_in(evaluation: LabelledRows, calibration: LabelledRows) -> LabelledRows:
    """The calibration rows that are no evaluation rows; data sets often repeat themselves."""

    def keys(rows: LabelledRows) -> list[bytes]:
        arrays = [rows.inputs[name] for name in sorted(rows.inputs)]
        return [b"".join(array[i].tobytes() for array in arrays) for i in range(len(rows))]

    seen = set(keys(evaluation))
    kept = [index for index, key in enumerate(keys(calibration)) if key not in seen]
    return calibration.take(np.array(kept, dtype=np.int64))


def digest_of(path: Path, limit_mib: float) -> Digest:
    """SHA-256 of a plain file of at most that size."""
    check_file(path, limit_mib=limit_mib)
    with path.open("rb") as file:
        return Digest(hashlib.file_digest(file, "sha256").hexdigest())


def _copy(source: Path, target: Path) -> Digest:
    digest = hashlib.sha256()
    with source.open("rb") as reader, target.open("wb") as writer:
        while piece := reader.read(1 << 20):
            digest.update(piece)
            writer.write(piece)
    return Digest(digest.hexdigest())
