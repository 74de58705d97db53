"""Stages of versions and canaries, in the memory of one process."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from variants.catalog.memory.operators import MemoryOperators
from variants.catalog.validity.absent import no_version
from variants.catalog.validity.canaries import (
    RolledBack,
    VersionKey,
    check_canary,
    check_may_share,
    key_of,
    none_to_end,
    standing,
    taken_back,
)
from variants.catalog.validity.plans import check_leads
from variants.catalog.validity.promoting import to_promote
from variants.catalog.validity.spaces import check_comparable, is_own_space, standing_back
from variants.types import Canary, CatalogState, ModelName, ModelVersion, Stage, TaskName


class MemoryCanaries(MemoryOperators):
    """The part of ``variants.catalog.protocol.Catalog`` about canaries and the way back."""

    def __init__(self) -> None:
        super().__init__()
        self._lived: set[VersionKey] = set()

    def set_stage(
        self,
        tasks: Collection[TaskName],
        model: ModelName,
        version: int,
        stage: Stage,
        *,
        decided_at: CatalogState | None = None,
    ) -> bool:
        with self._writing:
            old = self._snapshot
            if decided_at not in (None, old.state):
                return False
            known = {key_of(v) for v in old.versions}
            for task in tasks:
                if (task, model, version) not in known:
                    raise no_version(task, f"{model}-v{version}")
            self._move({(task, model, version): stage for task in tasks}, old.canaries)
            return True

    def promote(
        self, tasks: Collection[TaskName], model: ModelName, version: int | None = None
    ) -> tuple[ModelVersion, ...]:
        with self._writing:
            old = self._snapshot
            found = to_promote(tasks, model, version, old.versions, old.canaries)
            stages = {key_of(one): Stage.LIVE for one in found if one.stage is not Stage.LIVE}
            if stages:
                self._move(stages, old.canaries)
            return found

    def _move(self, stages: Mapping[VersionKey, Stage], canaries: Iterable[Canary]) -> None:
        """Write stages of versions, and the canaries that there are then."""
        old = self._snapshot
        apart = {task.name for task in old.tasks if is_own_space(task.metric)}
        back = standing_back((v for v in old.versions if v.task in apart), stages)
        stages = {**{key_of(v): Stage.CANARY for v in back}, **stages}
        versions = tuple(replace(v, stage=stages.get(key_of(v), v.stage)) for v in old.versions)
        kept = standing(canaries, versions)
        self._snapshot = replace(old, revision=old.revision + 1, versions=versions, canaries=kept)
        self._note_live()

    def _note_live(self) -> None:
        live = (v for v in self._snapshot.versions if v.stage is Stage.LIVE)
        self._lived = self._lived | set(map(key_of, live))

    def set_canary(self, *canaries: Canary) -> tuple[Canary, ...]:
        for canary in canaries:
            check_canary(canary)
        with self._writing:
            old = self._snapshot
            versions = {key_of(v): v for v in old.versions}
            known = {one.task: one for one in old.canaries}
            stages: dict[VersionKey, Stage] = {}
            metrics = {task.name: task.metric for task in old.tasks}
            for canary in canaries:
                key = (canary.task, canary.model, canary.version)
                check_may_share(canary, versions.get(key), known.get(canary.task))
                check_comparable(canary, metrics[canary.task])
                stages[key] = Stage.CANARY
            given = tuple(replace(one, number=old.revision + 1, ended="") for one in canaries)
            new = {one.task: one for one in given}
            self._move(stages, (known | new).values())
            return given

    def end_canary(self, tasks: Collection[TaskName], model: ModelName) -> tuple[Canary, ...]:
        with self._writing:
            sharing = (self._canary_of(task, model) for task in tasks)
            ended = tuple(one for one in sharing if one is not None)
            if not ended:
                raise none_to_end(tasks, model)
            self._move({}, (one for one in self._snapshot.canaries if one not in ended))
            return ended

    def _canary_of(self, task: TaskName, model: ModelName) -> Canary | None:
        of = (one for one in self._snapshot.canaries if (one.task, one.model) == (task, model))
        return next((one for one in of if one.share), None)

    def settle_canary(self, canary: Canary, *, promote: bool, why: str, epoch: int) -> bool:
        with self._writing:
            check_leads(epoch, self._epoch, "the verdict on a canary")
            known = self._canary_of(canary.task, canary.model)
            if known is None or known.share_id != canary.share_id:
                return False
            others = tuple(one for one in self._snapshot.canaries if one is not known)
            if promote:
                key = (known.task, known.model, known.version)
                self._move({key: Stage.LIVE}, others)
            else:
                self._move({}, (*others, replace(known, share=0.0, ended=why)))
            return True

    def roll_back(
        self, tasks: Collection[TaskName], model: ModelName, version: int | None = None
    ) -> tuple[RolledBack, ...]:
        with self._writing:
            old = self._snapshot
            done = taken_back(tasks, model, version, old.versions, old.canaries, self._lived)
            ended = [one.canary for one in done]
            stages = {key_of(moved): stage for one in done for moved, stage in one.moves}
            self._move(stages, (one for one in old.canaries if one not in ended))
            self._lived = self._lived - {key_of(one.retired) for one in done if one.retired}
            return done
