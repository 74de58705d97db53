"""Building the variants of one model version, each kind by its builder, in a sandboxed process."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from controlplane.building.build_cache import BuildCache
from controlplane.building.digests import file_digest
from controlplane.building.known_builds import KnownBuilds
from controlplane.building.meter import Meter
from controlplane.building.sources import Sources
from controlplane.building.types import RegistrationLimits, SkippedVariant
from profiler.sandbox.sandbox import Sandbox
from variants.builders.protocol import Needs
from variants.builders.registry import BUILDERS, SAME_FILE, make_builder, missing_here, variant_name
from variants.checks.onnx_file import check_file
from variants.errors import InvalidArtifact, InvalidInput, VariantNotBuilt
from variants.types import Digest, ModelVersion, Variant

REFERENCE = next(iter(BUILDERS))
"""The kind that is the model itself: all others are compared with it, and it cannot be missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltVariant:
    """A variant that was built and is about to be measured; its accuracy is not known."""

    kind: str
    variant: Variant
    path: Path
    known: bool = False
    """Whether its file was built before, and comes from the build cache."""


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
        self,
        version: ModelVersion,
        sources: Sources,
        folder: Path,
        limits: RegistrationLimits,
        cache: BuildCache | None = None,
        *,
        aligned: bool = True,
    ) -> None:
        """
        Args:
            cache: has what was built before, and gets what is built now.
            aligned: whether large weights are to lie where runtimes can map them
                (``variants.onnx_wire``).
        """
        self._version = version
        self._sources = sources
        self._folder = folder
        self._limits = limits
        self._aligned = aligned
        self._before = KnownBuilds(version.source, sources, cache)
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
        built: dict[str, BuiltVariant] = {}
        skipped: list[SkippedVariant] = []
        no_twin: dict[str, str] = {}
        """Why kinds could not be built whose files others would have had."""
        with ExitStack() as stack:
            sandboxes: dict[str, Sandbox] = {}
            for kind in kinds:
                name = variant_name(self._version.model, self._version.version, kind)
                try:
                    refused = no_twin.get(SAME_FILE.get(kind, ""))
                    if refused is not None:
                        meter.begin("build", f"{name} needs a file that could not be built")
                        raise VariantNotBuilt(f"{name}: {refused}")
                    twin = built.get(SAME_FILE.get(kind, ""))
                    one = self._from_cache(kind, name, meter) if twin is None else None
                    if twin is not None:
                        meter.begin("build", f"{name} has the file of {twin.variant.name}")
                        one = self._like(kind, twin)
                    elif one is None:
                        meter.begin("build", f"building {name}")
                        one = self._one(kind, name, self._sandbox(kind, sandboxes, stack))
                    built[kind] = one
                except InvalidArtifact as error:
                    if kind == REFERENCE:
                        raise InvalidArtifact(error.message) from error
                    reason = error.message.removeprefix(f"{name}: ")
                    no_twin[kind] = reason
                    skipped.append(SkippedVariant(name=name, reason=reason))
        return list(built.values()), skipped

    def _from_cache(self, kind: str, name: str, meter: Meter) -> BuiltVariant | None:
        """A variant that was built before.

        Raises:
            VariantNotBuilt: it could not be.
        """
        target = self._target(kind)
        try:
            note = self._before.take(kind, target)
        except VariantNotBuilt as error:
            meter.begin("build", f"{name} is not tried again, as it failed within the last hour")
            raise VariantNotBuilt(
                f"{name}: {error.message} (so it was within the last hour; --fresh tries again)"
            ) from error
        if note is None:
            return None
        meter.begin("build", f"{name} was built before, taken from {self._before.folder}")
        return self._described(kind, target, note, known=True)

    def _sandbox(self, kind: str, known: dict[str, Sandbox], stack: ExitStack) -> Sandbox:
        """A process for a kind: that of others with the same libraries, or a new one where the
        builder before may have ended it."""
        library = _library(kind)
        found = known.get(library)
        if found is None or not found.pid:
            sandbox = Sandbox(self._limits.trial, runtime=library)
            found = known[library] = stack.enter_context(sandbox)
        return found

    def _target(self, kind: str) -> Path:
        return self._folder / f"{kind}{make_builder(kind).suffix}"

    def _one(self, kind: str, name: str, sandbox: Sandbox) -> BuiltVariant:
        target, sources = self._target(kind), self._sources
        try:
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
                    "loss": sources.loss,
                    "metric": sources.metric,
                    "judged_output": sources.judged_output,
                    "along": sources.along,
                    "aligned": self._aligned,
                    "bucket": None if sources.bucket is None else asdict(sources.bucket),
                },
                subject=name,
            )
        except VariantNotBuilt as error:
            self._before.keep_refusal(kind, error.message.removeprefix(f"{name}: "))
            raise
        one = self._described(kind, target, str(found["note"]))
        self._before.keep(kind, one.variant.artifact, target, one.variant.note)
        return one

    def _described(self, kind: str, path: Path, note: str, *, known: bool = False) -> BuiltVariant:
        builder, version, limit_mib = make_builder(kind), self._version, 2 * self._limits.model_mib
        size = check_file(path, limit_mib=limit_mib)
        variant = Variant(
            task=version.task,
            name=variant_name(version.model, version.version, kind),
            model=version.model,
            version=version.version,
            runtime=builder.runtime,
            precision=builder.precision,
            artifact=digest_of(path, limit_mib),
            size_bytes=size,
            accuracy=0.0,
            accuracy_rows=0,
            options=dict(builder.options),
            note=note,
        )
        return BuiltVariant(kind=kind, variant=variant, path=path, known=known)

    def _like(self, kind: str, twin: BuiltVariant) -> BuiltVariant:
        """A variant that has the file of another one."""
        builder = make_builder(kind)
        variant = replace(
            twin.variant,
            name=variant_name(self._version.model, self._version.version, kind),
            runtime=builder.runtime,
            precision=builder.precision,
            options=dict(builder.options),
        )
        return replace(twin, kind=kind, variant=variant)


def _library(kind: str) -> str:
    """The runtime whose libraries building needs, which are not the model's memory."""
    return "torch" if "torch" in BUILDERS[kind].needs else "onnx"


def digest_of(path: Path, limit_mib: float) -> Digest:
    """SHA-256 of a plain file of at most that size."""
    check_file(path, limit_mib=limit_mib)
    return file_digest(path)
