"""Repairing: damaged artifacts are built again from their sources, where that gives the same bytes.

A variant's artifact was made by a builder from its version's source, and both are in the store by
content hash. What is built again counts only if it is the same, byte for byte: then everything that
was measured of it holds. Anything else (another version of a library, rows to calibrate with that
are not kept) is refused with that reason, and nothing is served under an accuracy that it does not
have.

What is damaged where artifacts are kept, on the head or in a bucket, may have a sound copy on this
machine: that is put back, and nothing is built.

A source itself cannot be built. Registering the same file again restores it, and rebuilds with the
rows that come with it what could not be built without them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane.building.digests import copied, file_digest
from controlplane.building.family import Building, obstacle
from controlplane.building.meter import Meter
from controlplane.building.sources import Sources
from controlplane.building.types import Progress, RegistrationLimits
from controlplane.building.work_folder import work_folder
from controlplane.profiling.configurations import kind_of
from controlplane.registry.damage import AGAIN, Damage, artifacts_of, damages
from controlplane.registry.preparation import Preparation, checked
from variants.artifacts.protocol import ArtifactStore
from variants.buckets import positions_axis
from variants.builders.registry import BUILDERS
from variants.errors import InvalidArtifact, NotFound, VariantNotLoadable
from variants.model_files import ModelFile
from variants.onnx_wire import align_weights
from variants.types import CatalogSnapshot, ModelVersion, Variant

Rows = Callable[[ModelVersion, Path, Path], Sources]
"""All that builders may draw on, for a version's source and its ONNX."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What became of a damaged artifact."""

    damage: Damage
    done: bool
    message: str
    """One clause: how it was rebuilt, or why it was not."""


class Repairing:
    """Rebuilds artifacts of one catalog into the store."""

    def __init__(
        self,
        catalog: CatalogSnapshot,
        store: ArtifactStore,
        meter: Meter,
        limits: RegistrationLimits,
        *,
        scratch: Path | None = None,
        rows: Rows | None = None,
    ) -> None:
        """``rows`` gives what a registration had besides the model; without it nothing is given."""
        self._catalog = catalog
        self._store = store
        self._meter = meter
        self._limits = limits
        self._scratch = scratch
        self._rows = rows

    def repair(self, damage: Damage) -> Repair:
        """Put a sound copy back, or build an artifact again from its source, and keep it if it is
        the same.

        Raises:
            StateUnavailable: the artifacts are not to be had, or cannot be written.
        """
        stored = damage.stored
        if self._store.put_back(stored.digest):
            message = "put back from a sound copy on this machine"
            return Repair(damage=damage, done=True, message=message)
        if stored.versions:
            message = f"it is the model as it was handed in; {AGAIN}"
            return Repair(damage=damage, done=False, message=message)
        reason = ""
        for variant in stored.variants:
            self._meter.begin("build", f"rebuilding {variant.name}")
            try:
                self._rebuild(variant)
            except (InvalidArtifact, NotFound, VariantNotLoadable) as error:
                reason = reason or error.message.removeprefix(f"{variant.name}: ")
                continue
            message = "rebuilt from its source, the same to the byte"
            return Repair(damage=damage, done=True, message=message)
        return Repair(damage=damage, done=False, message=reason)

    def _rebuild(self, variant: Variant) -> None:
        """
        Raises:
            InvalidArtifact: it cannot be built, or other bytes came of it.
            VariantNotLoadable: its source is damaged, too.
            NotFound: the catalog does not know its version.
        """
        kind = kind_of(variant)
        version = self._version_of(variant)
        try:
            source = self._store.sound(version.source)
        except VariantNotLoadable as error:
            why = error.message.removeprefix("its artifact")
            raise VariantNotLoadable(f"its source{why}; {AGAIN}") from error
        with work_folder(self._scratch) as work:
            sources = self._sources(version, source, work)
            if kind not in BUILDERS:
                raise InvalidArtifact(f"no builder makes {kind!r}")
            obstructed = obstacle(kind, sources.has, gpu=True)
            if obstructed is not None:
                raise InvalidArtifact(f"it cannot be built here: {obstructed}")
            building = Building(version, sources, work, self._limits, aligned=False)
            built, skipped = building.build([kind], self._meter)
            if not built:
                raise InvalidArtifact(f"it cannot be built: {skipped[0].reason}; {AGAIN}")
            if built[0].variant.artifact != variant.artifact:
                align_weights(built[0].path)  # as those are that were not built long ago
                if file_digest(built[0].path) != variant.artifact:
                    raise InvalidArtifact(self._differs())
            self._store.put(built[0].path)

    def _sources(self, version: ModelVersion, source: Path, work: Path) -> Sources:
        copy = work / f"source.{version.format}"
        if copied(source, copy) != version.source:
            raise InvalidArtifact(f"the source of {version.label} changed while it was read")
        onnx = copy
        if version.format != "onnx":
            _, onnx = checked(version, copy, work, self._limits)
        if self._rows is not None:
            return self._rows(version, copy, onnx)
        task = next(task for task in self._catalog.tasks if task.name == version.task)
        return Sources(
            onnx=onnx,
            program=None if onnx == copy else copy,
            calibration=None,
            floor=task.slo.accuracy,
            metric=task.metric,
            judged_output=task.outputs[0].name,
            along=positions_axis(task),
            bucket=task.bucket,
        )

    def _version_of(self, variant: Variant) -> ModelVersion:
        for version in self._catalog.versions:
            key = (version.task, version.model, version.version)
            if key == (variant.task, variant.model, variant.version):
                return version
        raise NotFound(f"the catalog has no version {variant.model_version}")

    def _differs(self) -> str:
        """Why other bytes than those that were measured are of no use, and what is."""
        if self._rows is None:
            return (
                "its builder makes other bytes now, which nothing was measured of: it wants the "
                f"rows that were calibrated with, or a library has changed; {AGAIN}"
            )
        return (
            "its builder makes other bytes of these rows and libraries, which nothing was "
            "measured of; register the model as a new version"
        )


def repair_all(
    found: Iterable[Damage],
    catalog: CatalogSnapshot,
    store: ArtifactStore,
    progress: Callable[[Progress], None] = lambda _: None,
    *,
    limits: RegistrationLimits | None = None,
    scratch: Path | None = None,
) -> tuple[Repair, ...]:
    """Repair what can be repaired without anything but the store, and copies of it here."""
    listed = tuple(found)
    meter = Meter(progress, total=2 * len(listed))
    repairing = Repairing(catalog, store, meter, limits or RegistrationLimits(), scratch=scratch)
    return tuple(repairing.repair(one) for one in listed)


class Mending:
    """Restores what is damaged of versions whose files and rows are handed in again."""

    def __init__(
        self,
        catalog: CatalogSnapshot,
        store: ArtifactStore,
        preparation: Preparation,
        meter: Meter,
        limits: RegistrationLimits,
        scratch: Path | None,
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._preparation = preparation
        self._repairing = Repairing(
            catalog, store, meter, limits, scratch=scratch, rows=self._sources
        )

    def mend(self, known: Sequence[tuple[ModelFile, ModelVersion]]) -> tuple[str, ...]:
        """What was damaged, and what became of it, a sentence each."""
        told: list[str] = []
        for file, version in known:
            own = artifacts_of(self._catalog, version.task, version=version.label)
            damaged = tuple(damages(own, self._store.check))
            for damage in damaged:  # first the source, which the others are rebuilt from
                if damage.stored.digest == version.source:
                    restored = self._store.put(file.path) == version.source
                    words = "restored" if restored else f"{file.path.name} changed meanwhile"
                    told.append(f"{', '.join(damage.stored.subjects)}: {words}")
            for damage in damaged:
                if damage.stored.digest != version.source:
                    repair = self._repairing.repair(damage)
                    words = "" if repair.done else "not repaired: "
                    told.append(f"{', '.join(damage.stored.subjects)}: {words}{repair.message}")
        return tuple(told)

    def _sources(self, version: ModelVersion, copy: Path, onnx: Path) -> Sources:
        task = next(task for task in self._catalog.tasks if task.name == version.task)
        return self._preparation.sources(task, copy, onnx)[1]
