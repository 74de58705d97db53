"""What an engine is kept under, and that only a whole one of our own is ever read."""

import os
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.sandbox.limits import MeasureLimits
from variants.errors import RuntimeFailed
from workers.runtimes.engine_store import (
    RANGES,
    BatchRange,
    EngineCache,
    EngineKey,
    digest_of,
    parse_ranges,
)

KEY = EngineKey(
    builder="TensorRT 11.4.0.106",
    gpu="NVIDIA H200",
    capability=(9, 0),
    multiprocessors=132,
    artifact=digest_of(b"model"),
    outputs=("y",),
    ranges=parse_ranges("1,2-8,9-32"),
    options=(("level", "3"),),
)
ENGINE = bytes(range(256)) * 8


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "engines"


@pytest.fixture
def cache(folder: Path) -> EngineCache:
    """It holds one engine."""
    made = EngineCache(folder)
    made.put(KEY.digest, ENGINE)
    return made


def file_of(folder: Path, key: EngineKey = KEY) -> Path:
    return folder / f"{key.digest}.engine"


# -- keys ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        replace(KEY, builder="TensorRT 11.4.1.0"),
        replace(KEY, gpu="NVIDIA H200 MIG 1g.18gb"),
        replace(KEY, capability=(10, 0)),
        replace(KEY, multiprocessors=16),
        replace(KEY, artifact=digest_of(b"another")),
        replace(KEY, outputs=("y", "z")),
        replace(KEY, ranges=parse_ranges("1-32")),
        replace(KEY, options=(("level", "5"),)),
    ],
    ids=lambda key: next(n for n in vars(KEY) if getattr(key, n, None) != getattr(KEY, n)),
)
def test_whatever_changes_the_engine_changes_its_key(
    cache: EngineCache, changed: EngineKey
) -> None:
    assert changed.digest != KEY.digest
    assert cache.get(changed.digest) is None


def test_a_key_is_the_same_in_every_process() -> None:
    """Hashes of Python's own differ from one to the next."""
    assert KEY.digest[:16] == "f79f4c3927e9edd4"


# -- ranges ----------------------------------------------------------------------------------------


def test_ranges_are_written_as_they_are_read() -> None:
    assert parse_ranges("1,2-8,9-32") == (BatchRange(1, 1), BatchRange(2, 8), BatchRange(9, 32))


def test_all_batch_sizes_that_are_measured_can_be_run() -> None:
    assert parse_ranges(RANGES)[-1].high == max(MeasureLimits().batch_sizes)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6))
def test_each_batch_size_lies_in_exactly_one_range(widths: list[int]) -> None:
    highs = [sum(widths[: i + 1]) for i in range(len(widths))]
    text = ",".join(
        str(BatchRange(high - width + 1, high)) for high, width in zip(highs, widths, strict=True)
    )
    ranges = parse_ranges(text)
    assert ",".join(map(str, ranges)) == text
    for rows in range(1, highs[-1] + 1):
        assert sum(each.low <= rows <= each.high for each in ranges) == 1


@pytest.mark.parametrize(
    "text",
    ["", "0-4", "2-8", "1,3-8", "1-8,8-16", "1-8,4", "4-1", "1-", "one", "1;2-8", "1-9999999"],
)
def test_ranges_with_a_gap_or_an_overlap_are_refused(text: str) -> None:
    with pytest.raises(RuntimeFailed, match="from 1 and without a gap"):
        parse_ranges(text)


# -- what is kept ----------------------------------------------------------------------------------


def test_what_was_kept_is_found_again(cache: EngineCache, folder: Path) -> None:
    assert cache.get(KEY.digest) == ENGINE
    assert EngineCache(folder).get(KEY.digest) == ENGINE


def test_what_was_never_kept_is_not_found(folder: Path) -> None:
    assert EngineCache(folder).get(KEY.digest) is None


def test_what_was_removed_is_not_found(cache: EngineCache) -> None:
    cache.remove(KEY.digest)
    cache.remove(KEY.digest)
    assert cache.get(KEY.digest) is None


def test_folder_and_files_are_nobody_else_s(cache: EngineCache, folder: Path) -> None:
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, file_of(folder))]
    assert modes == [0o700, 0o600]


def test_an_engine_is_replaced_whole(cache: EngineCache, folder: Path) -> None:
    with file_of(folder).open("rb") as read_meanwhile:
        cache.put(KEY.digest, b"newer")
        assert ENGINE in read_meanwhile.read()
    assert cache.get(KEY.digest) == b"newer"
    assert [path.name for path in folder.iterdir()] == [file_of(folder).name]


@given(st.data())
def test_a_damaged_engine_is_not_read_and_goes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A byte changed, an end cut off, or something behind it."""
    folder = tmp_path_factory.mktemp("cache") / "engines"
    cache = EngineCache(folder)
    cache.put(KEY.digest, ENGINE[:64])
    path = file_of(folder)
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    flipped = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    damaged = data.draw(st.sampled_from([flipped, whole[:at], whole + b"\0"]))
    path.write_bytes(damaged)
    assert cache.get(KEY.digest) is None
    assert not path.exists()


def test_an_engine_under_another_s_name_is_not_read(cache: EngineCache, folder: Path) -> None:
    other = replace(KEY, gpu="NVIDIA A100")
    file_of(folder).rename(file_of(folder, other))
    assert cache.get(other.digest) is None


def test_a_file_that_others_may_write_to_is_not_read(cache: EngineCache, folder: Path) -> None:
    file_of(folder).chmod(0o660)
    assert cache.get(KEY.digest) is None


def test_a_link_is_not_followed(cache: EngineCache, folder: Path, tmp_path: Path) -> None:
    moved = file_of(folder).rename(tmp_path / "elsewhere")
    file_of(folder).symlink_to(moved)
    assert cache.get(KEY.digest) is None


def test_a_pipe_is_not_waited_for(folder: Path, cache: EngineCache) -> None:
    cache.remove(KEY.digest)
    os.mkfifo(file_of(folder), 0o600)
    assert cache.get(KEY.digest) is None


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o755])
def test_a_folder_that_others_may_enter_is_not_used(
    cache: EngineCache, folder: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    folder.chmod(mode)
    assert cache.get(KEY.digest) is None
    cache.put(KEY.digest, b"newer")
    assert cache.subfolder(KEY.digest) is None
    folder.chmod(0o700)
    assert cache.get(KEY.digest) == ENGINE
    (said,) = caplog.messages
    assert said == f"engines are not kept: folder {folder} has mode {mode:04o}, not 0700"


def test_a_linked_folder_is_not_used(cache: EngineCache, folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert EngineCache(link).get(KEY.digest) is None


def test_a_folder_that_cannot_be_made_costs_no_more_than_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = EngineCache(tmp_path / "file" / "engines")
    cache.put(KEY.digest, ENGINE)
    with cache.building(KEY.digest):
        assert cache.get(KEY.digest) is None


# -- room ------------------------------------------------------------------------------------------


def test_the_longest_unused_engine_leaves_when_room_is_short(folder: Path) -> None:
    keys = [replace(KEY, multiprocessors=n) for n in range(4)]
    cache = EngineCache(folder, limit_mib=3.5)
    for at, key in enumerate(keys[:3]):
        cache.put(key.digest, bytes(2**20))
        os.utime(file_of(folder, key), (at, at))
    assert cache.get(keys[0].digest) is not None  # now the second is the longest unused
    cache.put(keys[3].digest, bytes(2**20))
    kept = [key.multiprocessors for key in keys if file_of(folder, key).exists()]
    assert kept == [0, 2, 3]


def test_an_engine_larger_than_all_room_is_kept_alone(folder: Path) -> None:
    cache = EngineCache(folder, limit_mib=0.001)
    other = replace(KEY, multiprocessors=1)
    cache.put(other.digest, ENGINE)
    cache.put(KEY.digest, ENGINE)
    assert (cache.get(other.digest), cache.get(KEY.digest)) == (None, ENGINE)


# -- several at once -------------------------------------------------------------------------------


def test_who_wants_what_another_builds_waits_and_finds_it(folder: Path) -> None:
    builds = []
    holding, go_on = threading.Event(), threading.Event()

    def load(wait: bool) -> None:
        cache = EngineCache(folder)
        with cache.building(KEY.digest):
            if cache.get(KEY.digest) is not None:
                return
            holding.set()
            if wait:
                go_on.wait(60)
            builds.append(threading.get_ident())
            cache.put(KEY.digest, ENGINE)

    first = threading.Thread(target=load, args=(True,))
    first.start()
    assert holding.wait(60)
    second = threading.Thread(target=load, args=(False,))
    second.start()
    go_on.set()
    for thread in (first, second):
        thread.join(60)
        assert not thread.is_alive()
    assert builds == [first.ident]
    assert [path.name for path in folder.iterdir()] == [file_of(folder).name]


def test_a_build_that_fails_lets_the_next_one_in(cache: EngineCache) -> None:
    with pytest.raises(RuntimeFailed), cache.building(KEY.digest):
        raise RuntimeFailed("out of memory")
    with cache.building(KEY.digest):
        pass


def test_a_back_end_that_keeps_engines_itself_gets_a_folder(
    cache: EngineCache, folder: Path
) -> None:
    found = [cache.subfolder(KEY.digest), cache.subfolder(KEY.digest)]
    assert found == [folder / KEY.digest] * 2
    (folder / KEY.digest).chmod(0o777)
    assert cache.subfolder(KEY.digest) is None
