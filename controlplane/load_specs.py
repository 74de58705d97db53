"""What a worker must be told to load a variant, from the catalog and the artifact store."""

from collections.abc import Mapping

from planner.selection.snapshot import latency_points, typical_points
from planner.types import Candidate, ReplicaTarget
from variants.artifacts.protocol import ArtifactStore
from variants.errors import NotFound, TaskNotFound
from variants.metrics.answered import classes_of
from variants.types import CatalogSnapshot, DeviceKindName, Profile, Task, Variant
from variants.working_memory import counted_mib, own_working_mib
from workers.types import LoadSpec


class Specs:
    """Load specs by task, variant and device kind, over one catalog snapshot."""

    def __init__(self, catalog: CatalogSnapshot, store: ArtifactStore) -> None:
        self._store = store
        self._tasks: Mapping[str, Task] = {task.name: task for task in catalog.tasks}
        self._variants: Mapping[tuple[str, str], Variant] = {v.key: v for v in catalog.variants}
        self._kinds = {kind.name: kind for kind in catalog.device_kinds}
        self._profiles: Mapping[tuple[str, str, str], Profile] = {
            (p.task, p.variant, p.device_kind): p for p in catalog.profiles
        }

    def of(
        self,
        task: str,
        variant: str,
        device_kind: str,
        *,
        target: ReplicaTarget | None = None,
    ) -> LoadSpec:
        """How to load a variant on a worker of a device kind, with what a plan gives to it there.

        Raises:
            NotFound: the catalog lost the variant or its profile; ``TaskNotFound``: the whole task.
        """
        if task not in self._tasks:
            raise TaskNotFound(f"there is no task {task!r} any more")
        found = self._variants.get((task, variant))
        profile = self._profiles.get((task, variant, device_kind))
        kind = self._kinds.get(DeviceKindName(device_kind))
        if found is None or profile is None or kind is None:
            raise NotFound(f"{task}/{variant} has no profile on {device_kind}")
        return LoadSpec(
            task=found.task,
            variant=found.name,
            runtime=found.runtime,
            artifact=found.artifact,
            path=str(self._store.place(found.artifact)),  # the worker sees whether it is there
            inputs=self._tasks[task].inputs,
            outputs=self._tasks[task].outputs,
            latency=tuple(latency_points(profile)),
            memory_mib=counted_mib(profile, kind),
            load_s=profile.load_s,
            share=0.0 if target is None else target.share,
            planned_qps=None if target is None else target.qps,
            longest_batch_ms=None if target is None else target.longest_batch_ms,
            pinned=None if target is None else target.pinned,
            options=tuple(sorted(found.options.items())),
            typical=typical_points(profile),
            device_kind=device_kind,
            own_working_mib=own_working_mib(profile, kind),
            cold_load_s=profile.cold_load_s,
            counts_answers=bool(classes_of(self._tasks[task])),
        )

    def of_candidate(self, candidate: Candidate) -> LoadSpec:
        return self.of(candidate.task, candidate.variant, candidate.device_kind)
