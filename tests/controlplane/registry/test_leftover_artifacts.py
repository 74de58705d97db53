"""Artifacts of what was removed are deleted once no worker has them loaded."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.registry import leftover_artifacts
from controlplane.registry.leftover_artifacts import (
    AbandonedArtifacts,
    LeftoverArtifacts,
    delete_unused,
    look_for_unused,
    without_removed,
)
from tests.controlplane.builders import DIGITS, digits_catalog, worker
from variants.artifacts.store import FileArtifactStore
from variants.artifacts.storing_notes import StoringNotes
from variants.catalog.memory import MemoryCatalog
from variants.errors import StateUnavailable
from variants.types import Digest, ReplicaState
from workers.types import WorkerStatus

INT8 = "mlp-v1-onnx-int8"


class House:
    """A catalog whose artifacts are files of 2 MiB."""

    def __init__(self, folder: Path) -> None:
        self.catalog: MemoryCatalog = digits_catalog()
        self.store = FileArtifactStore(folder / "store")
        self.told: list[tuple[str, str, str]] = []
        self.leftovers = LeftoverArtifacts(
            self.catalog, self.store, lambda *event: self.told.append(event)
        )
        source = folder / "source"
        self.stored: set[Digest] = set()
        for number in range(3):
            source.write_bytes(bytes([number]) * 2**21)
            self.stored.add(self.store.put(source))

    def leave(self, *digests: Digest) -> None:
        """Some artifacts are left over."""
        self.catalog._leftovers = dict.fromkeys(digests, "letters/mlp-v1")

    async def free(self, *workers: WorkerStatus) -> None:
        await self.leftovers.free(self.catalog.snapshot(), workers)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


async def test_what_is_left_over_is_deleted_and_told_once(house: House) -> None:
    first, second, third = sorted(house.stored)
    house.leave(first, second)
    for _ in range(2):
        await house.free(worker("w1", INT8))
    assert set(house.store.digests()) == {third}
    assert house.told == [("artifacts_freed", "letters/mlp-v1", "2 artifacts deleted, 4.0 MiB")]


async def test_what_another_catalog_may_use_stays_and_it_is_said(
    house: House, tmp_path: Path
) -> None:
    """A removal in one catalog deleted what another one had registered."""
    ours, theirs = (
        StoringNotes(tmp_path / "store", url="", name=tmp_path / name) for name in ("a", "b")
    )
    leftovers = LeftoverArtifacts(
        house.catalog, house.store, lambda *event: house.told.append(event), ours
    )
    first, second, _ = sorted(house.stored)
    with ours.noted([first]):
        pass
    house.leave(first)
    await leftovers.free(house.catalog.snapshot(), ())
    assert set(house.store.digests()) == house.stored - {first}

    with theirs.noted([second]):
        pass
    house.leave(second)
    await leftovers.free(replace(house.catalog.snapshot(), revision=99), ())

    assert set(house.store.digests()) == house.stored - {first}
    assert house.catalog.leftovers() == frozenset()
    assert house.told[-1] == (
        "artifacts_freed", "letters/mlp-v1",
        "0 artifacts deleted, 0.0 MiB; 1 artifact kept, which another catalog may use",
    )  # fmt: skip


async def test_much_is_deleted_over_several_turns_and_told_at_the_end(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be registered while some of it is deleted."""
    monkeypatch.setattr(leftover_artifacts, "AT_ONCE", 2)
    house.leave(*house.stored)
    await house.free()
    assert (len(set(house.store.digests())), house.told) == (1, [])
    await house.free()
    assert (set(house.store.digests()), house.catalog.leftovers()) == (set(), frozenset())
    await house.free()
    assert house.told == [("artifacts_freed", "letters/mlp-v1", "3 artifacts deleted, 6.0 MiB")]


async def test_where_the_store_is_away_the_catalog_is_not_held(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: Digest) -> int:
        raise StateUnavailable("the bucket does not answer")

    house.leave(*house.stored)
    monkeypatch.setattr(house.store, "size_bytes", away)
    monkeypatch.setattr(house.catalog, "free", pytest.fail)
    with pytest.raises(StateUnavailable):
        await house.free()


async def test_what_another_version_uses_stays_and_it_is_said(house: House) -> None:
    used = house.catalog.snapshot().variants[0].artifact
    house.leave(used, sorted(house.stored)[0])
    await house.free()
    (told,) = house.told
    assert told[2] == "1 artifact deleted, 2.0 MiB; 1 artifact kept, which other versions use"


async def test_while_a_worker_has_what_was_removed_nothing_is_deleted(house: House) -> None:
    house.leave(*house.stored)
    for held in (worker("w1", "old-v1"), worker("w1", loading=["old-v1"])):
        await house.free(held)
        assert set(house.store.digests()) == house.stored
    await house.free(worker("w1", INT8))
    assert set(house.store.digests()) == set()


async def test_what_is_away_is_tried_again(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: Digest) -> None:
        raise StateUnavailable("the bucket does not answer")

    house.leave(*house.stored)
    with monkeypatch.context() as patch:
        patch.setattr(house.store, "delete", away)
        with pytest.raises(StateUnavailable):
            await house.free()
    assert house.catalog.leftovers() == house.stored
    await house.free()
    assert (house.catalog.leftovers(), set(house.store.digests())) == (frozenset(), set())


def test_what_workers_only_list_of_removed_variants_is_not_shown() -> None:
    catalog = digits_catalog()
    status = worker("w1", INT8, "old-v1", "gone-v1")
    ready, old, gone = status.replicas
    gone = replace(gone, state=ReplicaState.QUARANTINED)
    ready = replace(ready, state=ReplicaState.FAILED)
    (shown,) = without_removed([replace(status, replicas=(ready, old, gone))], catalog.snapshot())
    assert shown == replace(status, replicas=(ready, old))
    assert old.task == DIGITS.name


# -- what killed registrations have stored ---------------------------------------------------------


class Ruin(House):
    """A killed registration has stored two of the three artifacts."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.now_s = 0.0
        self.notes = StoringNotes(self.store.root, url="", name=folder / "catalog.id")
        self.abandoned = AbandonedArtifacts(
            self.catalog, self.store, self.notes, lambda *event: self.told.append(event),
            lambda: self.now_s,
        )  # fmt: skip

    def leave_note(self, *digests: Digest, age_s: float = 7_200.0) -> None:
        with self.notes.noted(digests) as note:
            at_s = time.time() - age_s
            os.utime(note.path, (at_s, at_s))


@pytest.fixture
def ruin(tmp_path: Path) -> Ruin:
    return Ruin(tmp_path)


async def test_what_a_killed_registration_stored_is_deleted_and_told_once(ruin: Ruin) -> None:
    first, second, third = sorted(ruin.stored)
    ruin.leave_note(first, second)
    for _ in range(2):
        await ruin.abandoned.free()
        ruin.now_s += 7_200.0
    assert set(ruin.store.digests()) == {third}
    said = "2 artifacts deleted, 4.0 MiB"
    assert ruin.told == [("abandoned_artifacts_freed", "artifacts", said)]


async def test_it_looks_once_an_hour(ruin: Ruin) -> None:
    await ruin.abandoned.free()
    ruin.leave_note(*ruin.stored)
    await ruin.abandoned.free()
    assert set(ruin.store.digests()) == ruin.stored
    ruin.now_s += 3_600.0
    await ruin.abandoned.free()
    assert set(ruin.store.digests()) == set()


async def test_what_is_young_or_registered_stays(ruin: Ruin) -> None:
    first, second, third = sorted(ruin.stored)
    used = replace(ruin.catalog.snapshot().variants[0], artifact=first)
    variants = (used, *ruin.catalog.snapshot().variants[1:])
    ruin.catalog._snapshot = replace(ruin.catalog._snapshot, variants=variants)
    ruin.leave_note(first, second)
    ruin.leave_note(third, age_s=60.0)
    await ruin.abandoned.free()
    assert set(ruin.store.digests()) == {first, third}
    assert ruin.told == [("abandoned_artifacts_freed", "artifacts", "1 artifact deleted, 2.0 MiB")]


async def test_what_a_running_registration_stores_stays(ruin: Ruin) -> None:
    with ruin.notes.noted(ruin.stored) as note:
        os.utime(note.path, (0, 0))
        await ruin.abandoned.free()
    assert (set(ruin.store.digests()), ruin.told) == (ruin.stored, [])


async def test_without_notes_nothing_is_looked_for(ruin: Ruin) -> None:
    ruin.leave_note(*ruin.stored)
    nothing = AbandonedArtifacts(
        ruin.catalog, ruin.store, None, lambda *event: ruin.told.append(event), lambda: 0.0
    )
    await nothing.free()
    assert set(ruin.store.digests()) == ruin.stored


async def test_a_database_that_is_away_is_asked_again(
    ruin: Ruin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> tuple[Digest, ...]:
        raise StateUnavailable("away")

    ruin.leave_note(*ruin.stored)
    with monkeypatch.context() as patched:
        patched.setattr(ruin.catalog, "discard", away)
        with pytest.raises(StateUnavailable):
            await ruin.abandoned.free()
    await ruin.abandoned.free()
    assert set(ruin.store.digests()) == set()


# -- what no note tells of ------------------------------------------------------------------------

LATER_S = 1e11


def naming(digest: Digest) -> MemoryCatalog:
    """A catalog one of whose variants has that artifact."""
    catalog = digits_catalog()
    known = catalog.snapshot()
    variant, *others = known.variants
    catalog._snapshot = replace(known, variants=(replace(variant, artifact=digest), *others))
    return catalog


def test_unused_is_what_no_catalog_names_and_nobody_has_just_stored(house: House) -> None:
    ours, theirs, nobodys = sorted(house.stored)
    catalogs = (naming(ours), naming(theirs))

    found = look_for_unused(house.store, catalogs, before_s=LATER_S)
    assert [one.digest for one in found.unused] == [nobodys]
    assert (found.stored, found.named, found.younger) == (3, 2, 0)
    assert found.unused[0].size_bytes == 2**21
    young = look_for_unused(house.store, catalogs, before_s=time.time() - 3_600)
    assert (young.unused, young.younger) == ((), 1)

    assert delete_unused(house.store, catalogs, found.unused) == (nobodys,)
    assert set(house.store.digests()) == {ours, theirs}


def test_what_came_to_be_used_since_it_was_found_stays(house: House, tmp_path: Path) -> None:
    ours, theirs, again = sorted(house.stored)
    found = look_for_unused(house.store, (naming(ours),), before_s=LATER_S).unused
    assert {one.digest for one in found} == {theirs, again}
    os.utime(house.store.place(again))  # as a bucket does when the same is stored once more

    assert delete_unused(house.store, (naming(ours), naming(theirs)), found) == ()
    assert set(house.store.digests()) == house.stored
