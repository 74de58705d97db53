"""Building the variants of one model version, each kind by its builder, in a sandboxed process."""

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from controlplane.building.meter import Meter
from controlplane.building.types import RegistrationLimits, SkippedVariant
from profiler.evaluation.labelled_rows import LabelledRows
from profiler.sandbox.sandbox import Sandbox, SandboxLimits
from variants.builders.protocol import Needs
from variants.builders.registry import BUILDERS, make_builder, missing_here, variant_name
from variants.checks.onnx_check import check_file
from variants.errors import InvalidArtifact, InvalidInput, VariantNotBuilt
from variants.types import Digest, ModelVersion, Variant

REFERENCE = next(iter(BUILDERS))
"""The kind that is the model itself: all others are compared with it, and it cannot be missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What builders may draw on. Files lie where the sandbox can read them."""

    onnx: Path
    calibration: LabelledRows | None
    """Rows to quantise with; None when a variant is built again without them."""
    program: Path | None = None
    """The ``torch.export`` archive that the ONNX was taken from."""
    training: LabelledRows | None = None
    teacher: Path | None = None
    floor: float | None = None
    metric: str = "top1"
    judged_output: str = ""
    """Name of the task's first output, which the metric is of."""

    @property
    def has(self) -> frozenset[Needs]:
        there = {
            Needs.PROGRAM: self.program,
            Needs.TRAINING: self.training,
            Needs.TEACHER: self.teacher,
        }
        return frozenset(need for need, found in there.items() if found is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltVariant:
    """A variant that was built and is about to be measured; its accuracy is not known."""

    kind: str
    variant: Variant
    path: Path


def kinds_to_build(
    asked: Sequence[str] | None, has: frozenset[Needs], *, gpu: bool
) -> tuple[list[str], list[tuple[str, str]]]:
    """Kinds to build, the model itself first, and those that cannot be, each with its reason.

    With nothing asked it is every kind that can be built here of what there is, and no reason is
    given for the others.

    Raises:
        InvalidInput: a kind that is asked for is unknown.
    """
    unknown = [kind for kind in asked or () if kind not in BUILDERS]
    if unknown:
        known = ", ".join(BUILDERS)
        raise InvalidInput(f"there is no kind of variant {unknown[0]!r}; there are: {known}")
    chosen: list[str] = []
    left_out: list[tuple[str, str]] = []
    for kind in BUILDERS:
        if kind != REFERENCE and asked is not None and kind not in asked:
            continue
        reason = obstacle(kind, has, gpu=gpu)
        if reason is None or kind == REFERENCE:
            chosen.append(kind)
        elif asked is not None:
            left_out.append((kind, reason))
    return chosen, left_out


def obstacle(kind: str, has: frozenset[Needs], *, gpu: bool) -> str | None:
    """Why a kind cannot be built here of what there is, in one clause; None when it can."""
    try:
        builder = make_builder(kind)
    except VariantNotBuilt as error:
        return error.message
    if builder.gpu and not gpu:
        return "it runs on GPUs only, and there is no GPU worker"
    lacks = [need for need in Needs if need in builder.needs and need not in has]
    return f"it needs {lacks[0].value}" if lacks else missing_here(kind)


class Building:
    """Builds variants of one version into a folder."""

    def __init__(
        self, version: ModelVersion, sources: Sources, folder: Path, limits: RegistrationLimits
    ) -> None:
        self._version = version
        self._sources = sources
        self._folder = folder
        self._limits = limits
        self._calibration = folder / "calibration.npz"
        self._training = folder / "training.npz"

    def build(
        self, kinds: Sequence[str], meter: Meter
    ) -> tuple[list[BuiltVariant], list[SkippedVariant]]:
        """What could be built of these kinds, and what could not.

        A builder that crashes costs its own variant; the next one has a new process.

        Raises:
            InvalidArtifact: the model itself, the first kind, was refused.
        """
        sources = self._sources
        if sources.calibration is not None:
            sources.calibration.save(self._calibration)
        if sources.training is not None:
            sources.training.save(self._training)
        built: list[BuiltVariant] = []
        skipped: list[SkippedVariant] = []
        with ExitStack() as stack:
            sandboxes: dict[str, Sandbox] = {}
            for kind in kinds:
                name = variant_name(self._version.model, self._version.version, kind)
                meter.begin("build", f"building {name}")
                library = _library(kind)
                known = sandboxes.get(library)
                if known is None or not known.pid:  # the builder before may have ended it
                    known = stack.enter_context(self._sandbox(library))
                    sandboxes[library] = known
                try:
                    built.append(self._one(kind, name, known))
                except InvalidArtifact as error:
                    if kind == REFERENCE:
                        raise InvalidArtifact(error.message) from error
                    reason = error.message.removeprefix(f"{name}: ")
                    skipped.append(SkippedVariant(name=name, reason=reason))
        return built, skipped

    def _sandbox(self, library: str) -> Sandbox:
        limits = SandboxLimits(memory_mib=self._limits.trial_mib, time_s=self._limits.trial_s)
        return Sandbox(limits, runtime=library)

    def _one(self, kind: str, name: str, sandbox: Sandbox) -> BuiltVariant:
        builder = make_builder(kind)
        target = self._folder / f"{kind}{builder.suffix}"
        sources, limits = self._sources, self._limits
        found = sandbox.call(
            "build",
            {
                "kind": kind,
                "source": str(sources.onnx),
                "program": str(sources.program or ""),
                "target": str(target),
                "calibration": "" if sources.calibration is None else str(self._calibration),
                "training": "" if sources.training is None else str(self._training),
                "teacher": str(sources.teacher or ""),
                "floor": sources.floor,
                "metric": sources.metric,
                "judged_output": sources.judged_output,
            },
            subject=name,
        )
        version = self._version
        size = check_file(target, limit_mib=2 * limits.model_mib)
        variant = Variant(
            task=version.task,
            name=variant_name(version.model, version.version, kind),
            model=version.model,
            version=version.version,
            runtime=builder.runtime,
            precision=builder.precision,
            artifact=digest_of(target, 2 * limits.model_mib),
            size_bytes=size,
            accuracy=0.0,
            accuracy_rows=0,
            options=dict(builder.options),
            note=str(found["note"]),
        )
        return BuiltVariant(kind=kind, variant=variant, path=target)


def _library(kind: str) -> str:
    """The runtime whose libraries building needs, which are not the model's memory."""
    return "torch" if "torch" in BUILDERS[kind].needs else "onnx"


def digest_of(path: Path, limit_mib: float) -> Digest:
    """SHA-256 of a plain file of at most that size."""
    check_file(path, limit_mib=limit_mib)
    with path.open("rb") as file:
        return Digest(hashlib.file_digest(file, "sha256").hexdigest())
