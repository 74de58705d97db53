"""Notes of what is being stored: those of killed writers are found, and no others."""

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from tests.disks import fill, small_disk
from variants.artifacts.storing_notes import StoringNotes
from variants.errors import StateUnavailable
from variants.types import Digest

FIRST, SECOND = Digest("a" * 64), Digest("b" * 64)


def notes_in(folder: Path, *, url: str = "", name: str = "catalog.id") -> StoringNotes:
    return StoringNotes(folder / "artifacts", url=url, name=folder / name)


def found(notes: StoringNotes, safe_s: float = 0.0) -> list[frozenset[Digest]]:
    with notes.abandoned(safe_s) as abandoned:
        return [note.digests for note in abandoned]


def leave(notes: StoringNotes, *digests: Digest) -> None:
    """What a writer leaves that was killed: its note, which nobody holds."""
    with notes.noted(digests):
        pass


@pytest.fixture
def notes(tmp_path: Path) -> StoringNotes:
    return notes_in(tmp_path)


def test_a_full_disk_is_told_before_anything_is_stored() -> None:
    with small_disk(16 * 1024) as disk:
        notes = notes_in(disk)
        notes.ensure_room(2**20)
        assert [path.name for path in (disk / "artifacts").iterdir()] == []
        fill(disk)
        with pytest.raises(StateUnavailable, match="artifacts has no room for 5 MiB: No space le"):
            notes.ensure_room(2**20)


def test_nothing_was_ever_stored(notes: StoringNotes) -> None:
    assert found(notes) == []


def test_what_is_at_work_is_not_found_and_what_was_left_is(notes: StoringNotes) -> None:
    with notes.noted((FIRST, SECOND)):
        assert found(notes) == []
    assert found(notes) == [{FIRST, SECOND}]


def test_what_was_forgotten_is_not_found(notes: StoringNotes) -> None:
    with notes.noted((FIRST,)) as note:
        note.forget()
    assert found(notes) == []


def test_what_was_left_just_now_is_not_found_yet(notes: StoringNotes) -> None:
    leave(notes, FIRST)
    assert found(notes, safe_s=60.0) == []


def test_two_do_not_find_the_same(notes: StoringNotes) -> None:
    leave(notes, FIRST)
    with notes.abandoned(0.0) as first:
        assert [note.digests for note in first] == [{FIRST}]
        assert found(notes) == []


def test_a_note_that_was_not_written_whole_is_removed(notes: StoringNotes, tmp_path: Path) -> None:
    leave(notes, FIRST)
    (path,) = (tmp_path / "artifacts" / "storing").glob("[!o]*")
    path.write_text('["aaaa')
    assert found(notes) == []
    assert not path.exists()


@pytest.mark.parametrize(
    "other", [{"url": "postgresql://host/db"}, {"name": "another.id"}], ids=["url", "state"]
)
def test_where_another_catalog_stores_as_well_nothing_is_found(
    tmp_path: Path, other: dict[str, str]
) -> None:
    first, second = notes_in(tmp_path), notes_in(tmp_path, **other)
    leave(first, FIRST)
    assert found(first) == [{FIRST}]
    leave(second, SECOND)
    assert (found(first), found(second)) == ([], [])


def test_a_catalog_that_was_moved_is_still_the_same(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    leave(notes_in(tmp_path / "before"), FIRST)
    (tmp_path / "before").rename(tmp_path / "after")
    assert found(notes_in(tmp_path / "after")) == [{FIRST}]


def test_no_url_is_written_down(tmp_path: Path) -> None:
    leave(notes_in(tmp_path, url="postgresql://me:secret@host/db"), FIRST)
    names = [path.name for path in tmp_path.rglob("*")]
    texts = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert "secret" not in "".join((*names, *texts))


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "artifacts").write_text("a file")
    with pytest.raises(StateUnavailable, match="is not available"):
        leave(notes_in(tmp_path), FIRST)


def _store_and_die(folder: Path) -> None:
    with notes_in(folder).noted((FIRST,)):
        os.kill(os.getpid(), signal.SIGKILL)


def test_the_note_of_a_killed_process_is_found(tmp_path: Path) -> None:
    child = multiprocessing.get_context("spawn").Process(target=_store_and_die, args=(tmp_path,))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert found(notes_in(tmp_path)) == [{FIRST}]
