"""The build cache: what is kept is found whole or not at all, and takes no more than it may."""

import os
import threading
from pathlib import Path

import pytest

from controlplane.building import build_cache
from controlplane.building.build_cache import BuildCache, cache_in

MIB = 2**20


@pytest.fixture
def cache(tmp_path: Path) -> BuildCache:
    return BuildCache(tmp_path / "cache", 10 * MIB)


def file_of(folder: Path, content: bytes = b"built") -> Path:
    path = folder / "source"
    path.write_bytes(content)
    return path


def test_what_was_kept_is_found(cache: BuildCache, tmp_path: Path) -> None:
    assert (cache.find("a"), cache.has_kept) == (None, False)
    kept = cache.keep("a", {"accuracy": 0.1 + 0.2, "note": "3 nodes"}, file_of(tmp_path))
    assert (kept, cache.has_kept) == (True, True)
    found = BuildCache(cache.root, MIB).find("a", tmp_path / "target")
    assert found is not None
    assert found.value == {"accuracy": 0.1 + 0.2, "note": "3 nodes"}
    assert (tmp_path / "target").read_bytes() == b"built"


def test_a_result_needs_no_file(cache: BuildCache, tmp_path: Path) -> None:
    cache.keep("a", {"rows": 24})
    found = cache.find("a", tmp_path / "target")
    assert found is not None
    assert (found.value, (tmp_path / "target").exists()) == ({"rows": 24}, False)


def test_a_later_result_takes_the_place_of_the_first(cache: BuildCache) -> None:
    cache.keep("a", {"rows": 1})
    cache.keep("a", {"rows": 2})
    found = cache.find("a")
    assert found is not None
    assert found.value == {"rows": 2}


@pytest.mark.parametrize("suffix", [".json", ".bin"])
@pytest.mark.parametrize("damage", ["gone", "cut", "changed"])
def test_what_is_damaged_counts_as_missing_and_is_removed(
    cache: BuildCache, tmp_path: Path, suffix: str, damage: str
) -> None:
    cache.keep("a", {"rows": 24}, file_of(tmp_path))
    path = cache.root / f"a{suffix}"
    whole = path.read_bytes()
    match damage:
        case "gone":
            path.unlink()
        case "cut":
            path.write_bytes(whole[:-1])
        case _:
            path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    target = tmp_path / "target"
    assert cache.find("a", target) is None
    assert not target.exists()
    assert not (cache.root / "a.json").exists()
    cache.keep("a", {"rows": 24}, file_of(tmp_path))
    assert cache.find("a", target) is not None


def test_what_was_not_used_for_the_longest_leaves_first(cache: BuildCache, tmp_path: Path) -> None:
    large = file_of(tmp_path, bytes(4 * MIB))
    for key in "ab":
        cache.keep(key, {}, large)
    later = BuildCache(cache.root, 10 * MIB)
    assert later.find("a") is not None
    later.keep("c", {}, large)
    assert [cache.find(key) is not None for key in "abc"] == [True, False, True]
    assert sum(path.stat().st_size for path in cache.root.iterdir()) <= 10 * MIB


def test_files_leave_before_what_was_measured_of_them(cache: BuildCache, tmp_path: Path) -> None:
    cache.keep("measured", {"accuracy": 0.9})
    large = file_of(tmp_path, bytes(9 * MIB))
    cache.keep("file", {}, large)
    later = BuildCache(cache.root, 10 * MIB)
    assert later.keep("another", {}, large)
    assert [later.find(key) is not None for key in ("measured", "file", "another")] == [
        True,
        False,
        True,
    ]


def test_a_family_that_is_too_large_is_kept_as_far_as_it_fits(
    cache: BuildCache, tmp_path: Path
) -> None:
    large = file_of(tmp_path, bytes(4 * MIB))
    assert [cache.keep(key, {}, large) for key in "abc"] == [True, True, False]
    again = BuildCache(cache.root, 10 * MIB)
    assert [again.find(key) is not None for key in "abc"] == [True, True, False]
    assert not again.keep("c", {}, large)
    assert [again.find(key) is not None for key in "ab"] == [True, True]


def test_what_one_registration_has_used_leaves_for_the_next(
    cache: BuildCache, tmp_path: Path
) -> None:
    large = file_of(tmp_path, bytes(9 * MIB))
    cache.keep("a", {}, large)
    cache.begin()
    assert cache.keep("b", {}, large)
    assert cache.find("a") is None


def test_what_never_has_room_is_not_kept(cache: BuildCache, tmp_path: Path) -> None:
    cache.keep("a", {})
    assert not cache.keep("b", {}, file_of(tmp_path, bytes(11 * MIB)))
    assert cache.find("a") is not None


def test_nothing_is_kept_on_a_disk_that_is_nearly_full(
    cache: BuildCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_cache, "LEAST_FREE_BYTES", 1 << 62)
    assert not cache.keep("a", {})
    assert cache.find("a") is None


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    cache = BuildCache(tmp_path / "cache", MIB)
    assert not cache.keep("a", {})
    assert cache.find("a") is None


def test_what_a_killed_writer_left_is_removed_a_day_later(cache: BuildCache) -> None:
    cache.keep("a", {})
    left = [cache.root / name for name in ("old.part", "new.part")]
    for path in left:
        path.write_bytes(b"half")
    os.utime(left[0], (0, 0))
    cache.keep("b", {})
    assert [path.exists() for path in left] == [False, True]


def test_who_wants_all_anew_finds_nothing_and_keeps_what_is_done(cache: BuildCache) -> None:
    cache.keep("a", {"rows": 1})
    fresh = cache_in(cache.root, 10.0, fresh=True)
    assert fresh is not None
    assert fresh.find("a") is None
    fresh.keep("a", {"rows": 2})
    found = cache.find("a")
    assert found is not None
    assert found.value == {"rows": 2}


def test_a_cache_that_may_take_nothing_is_none(tmp_path: Path) -> None:
    assert cache_in(tmp_path, 0.0) is None


def test_some_results_hold_for_a_while_only(cache: BuildCache) -> None:
    cache.keep("a", {})
    assert cache.find("a", newest_s=60.0) is not None
    os.utime(cache.root / "a.json", (0, 0))
    assert cache.find("a", newest_s=60.0) is None


def test_several_may_write_the_same_at_once(cache: BuildCache, tmp_path: Path) -> None:
    source = file_of(tmp_path, bytes(MIB))
    found: list[bool] = []

    def work(number: int) -> None:
        for _ in range(10):
            cache.keep("a", {"rows": 1}, source)
            kept = cache.find("a", tmp_path / f"target-{number}")
            found.append(kept is None or kept.value == {"rows": 1})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found)
    assert cache.find("a", tmp_path / "target") is not None
    assert not list(cache.root.glob("*.part"))
