"""Stages of versions and canaries, in the memory of one process."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from variants.catalog.memory.operators import MemoryOperators
from variants.catalog.validity.canaries import (
    RolledBack,
    VersionKey,
    check_canary,
    check_may_share,
    none_to_end,
    standing,
    versions_to_swap,
)
from variants.errors import NotFound, StaleEpoch
from variants.types import Canary, ModelName, Stage, TaskName


class MemoryCanaries(MemoryOperators):
    """The part of ``variants.catalog.protocol.Catalog`` about canaries and the way back."""

    def __init__(self) -> None:
        super().__init__()
        self._lived: set[VersionKey] = set()

    def set_stage(self, task: TaskName, model: ModelName, version: int, stage: Stage) -> None:
        with self._writing:
            old = self._snapshot
            wanted = (task, model, version)
            if not any((v.task, v.model, v.version) == wanted for v in old.versions):
                raise NotFound(f"task {task!r} has no version {model}-v{version}")
            self._move({wanted: stage}, old.canaries)

    def _move(self, stages: Mapping[VersionKey, Stage], canaries: Iterable[Canary]) -> None:
        """Write stages of versions, and the canaries that there are then."""
        old = self._snapshot
        versions = tuple(
            replace(v, stage=stages.get((v.task, v.model, v.version), v.stage))
            for v in old.versions
        )
        kept = standing(canaries, versions)
        self._snapshot = replace(old, revision=old.revision + 1, versions=versions, canaries=kept)
        self._note_live()

    def _note_live(self) -> None:
        live = (v for v in self._snapshot.versions if v.stage is Stage.LIVE)
        self._lived = self._lived | {(v.task, v.model, v.version) for v in live}

    def set_canary(self, canary: Canary) -> Canary:
        check_canary(canary)
        with self._writing:
            old, key = self._snapshot, (canary.task, canary.model, canary.version)
            named = (v for v in old.versions if (v.task, v.model, v.version) == key)
            known = next((one for one in old.canaries if one.task == canary.task), None)
            check_may_share(canary, next(named, None), known)
            stored = replace(canary, number=old.revision + 1, ended="")
            others = (one for one in old.canaries if one.task != canary.task)
            self._move({key: Stage.CANARY}, (*others, stored))
            return stored

    def end_canary(self, task: TaskName, model: ModelName) -> Canary:
        with self._writing:
            return self._end_canary(task, model)

    def _end_canary(self, task: TaskName, model: ModelName) -> Canary:
        known = self._canary_of(task, model)
        if known is None:
            raise none_to_end(task, model)
        self._move({}, (one for one in self._snapshot.canaries if one is not known))
        return known

    def _canary_of(self, task: TaskName, model: ModelName) -> Canary | None:
        of = (one for one in self._snapshot.canaries if (one.task, one.model) == (task, model))
        return next((one for one in of if one.share), None)

    def settle_canary(self, canary: Canary, *, promote: bool, why: str, epoch: int) -> bool:
        with self._writing:
            if epoch != self._epoch or not self._epoch:
                raise StaleEpoch(f"epoch {epoch} judged a canary; the leader's is {self._epoch}")
            known = self._canary_of(canary.task, canary.model)
            if known is None or known.number != canary.number:
                return False
            others = tuple(one for one in self._snapshot.canaries if one is not known)
            if promote:
                key = (known.task, known.model, known.version)
                self._move({key: Stage.LIVE}, others)
            else:
                self._move({}, (*others, replace(known, share=0.0, ended=why)))
            return True

    def roll_back(self, tasks: Collection[TaskName], model: ModelName) -> tuple[RolledBack, ...]:
        with self._writing:
            old, sharing = self._snapshot, [self._canary_of(task, model) for task in tasks]
            if ended := [one for one in sharing if one is not None]:
                self._move({}, (one for one in old.canaries if one not in ended))
                return tuple(RolledBack(canary=one) for one in ended)
            swaps = [versions_to_swap(task, model, old.versions, self._lived) for task in tasks]
            stages: dict[VersionKey, Stage] = {}
            for newest, before in swaps:
                stages[newest.task, model, newest.version] = Stage.RETIRED
                stages[before.task, model, before.version] = Stage.LIVE
            self._move(stages, old.canaries)
            return tuple(RolledBack(retired=newest, restored=before) for newest, before in swaps)
