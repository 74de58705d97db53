"""A house for models: a catalog, a store, and what is registered there."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from controlplane.building.types import (
    Progress,
    RegistrationLimits,
    RegistrationRequest,
    RegistrationResult,
)
from controlplane.registry.registration import register
from profiler.sandbox.limits import MeasureLimits, SandboxLimits
from tests import onnx_models as models
from tests.profiler.forked import servers
from tests.variants.catalog.copies import copy_registrations
from variants.artifacts.store import FileArtifactStore
from variants.catalog.memory import MemoryCatalog
from variants.catalog.protocol import Catalog
from variants.types import DeviceKind, DeviceKindName, Registration

CPU = DeviceKind(name=DeviceKindName("cpu-1"), cores=1, memory_mib=1_000.0, usd_per_hour=0.04)
QUICK = RegistrationLimits(
    model_mib=1,
    trial=SandboxLimits(memory_mib=1_000, time_s=60),
    measure=MeasureLimits(batch_sizes=(1, 2, 4), point_s=0.004, min_runs=4),
)


class House:
    """A catalog and a store, a model and rows, and one way to register."""

    def __init__(self, folder: Path, catalog: Catalog | None = None) -> None:
        self.folder = folder
        self.catalog = catalog or MemoryCatalog()
        self.store = FileArtifactStore(folder / "store")
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        self.model = models.write(folder / "tiny.onnx")
        self.rows = models.write_rows(folder / "rows.npz")
        self.told: list[Progress] = []
        # Services that other tests of this run have started are not this one's.
        self.others = children()

    @classmethod
    def like(cls, other: "House", folder: Path) -> "House":
        """One with the same in its catalog and its store: registering takes seconds."""
        made = cls(folder)
        copy_registrations(other.catalog.snapshot(), made.catalog)
        shutil.copytree(other.folder / "store", folder / "store", dirs_exist_ok=True)
        return made

    def register(self, **changes: Any) -> RegistrationResult:
        limits = changes.pop("limits", QUICK)
        progress = changes.pop("progress", self.told.append)
        given: dict[str, Any] = {
            "path": self.model,
            "task": "shapes",
            "evaluation": self.rows,
            "kinds": ("onnx-int8",),
        } | changes
        return register(
            RegistrationRequest(**given),
            self.catalog,
            self.store,
            (CPU,),
            progress,
            limits=limits,
            scratch=self.scratch,
        )

    def assert_untouched(self) -> None:
        assert self.catalog.snapshot().versions == ()
        assert list(self.store.digests()) == []
        assert list(self.scratch.iterdir()) == []
        self.assert_nothing_runs()

    def assert_nothing_runs(self) -> None:
        ours = set()
        for process in children() - self.others:
            with suppress(psutil.NoSuchProcess):
                if process.parent() not in self.others:  # a database starts some by itself
                    ours.add(process)
        assert ours == set()


def children() -> set[psutil.Process]:
    here = psutil.Process().children(recursive=True)
    return {process for process in here if process.pid not in servers()}


class BrokenCatalog(MemoryCatalog):
    """Takes nothing from a given registration on."""

    def __init__(self, *, takes: int, error: BaseException) -> None:
        super().__init__()
        self._takes = takes
        self._error = error

    def register(self, *registrations: Registration, joins: bool = False) -> None:
        if not self._takes:
            raise self._error
        self._takes -= 1
        super().register(*registrations, joins=joins)
