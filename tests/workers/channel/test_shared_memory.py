"""Shared memory: what is lent is read elsewhere, and what is no such block is not mapped."""

import errno
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.services import SHARED_MEMORY
from variants.errors import Conflict, InvalidInput
from workers.channel.extents import GRANULE
from workers.channel.frames import layout_of, signature_of
from workers.channel.shared_memory import (
    IDLE_S,
    KEPT_BYTES,
    LARGE_STEP_BYTES,
    STEP_BYTES,
    Budget,
    LentBlock,
    borrow,
)

pytestmark = SHARED_MEMORY
SIZE = 16 * GRANULE


@pytest.fixture
def block() -> Iterator[LentBlock]:
    made = LentBlock(SIZE)
    yield made
    made.close()


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    """One end of a Unix socket, the other of which is this process as well."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours


def test_what_is_lent_is_read_at_the_other_end(block: LentBlock, connection: socket.socket) -> None:
    seen = borrow(connection, block.offer)
    sent = [np.arange(12, dtype=np.float32).reshape(3, 4).T, np.array([True, False, True, True])]
    layout = layout_of(signature_of(sent))
    begin = block.lend(7, layout, sent)
    assert begin is not None
    for got, want in zip(layout.tensors(seen, begin), sent, strict=True):
        np.testing.assert_array_equal(got, want)
        assert not got.flags.writeable


def test_room_comes_back_with_the_reply_and_once(block: LentBlock) -> None:
    sent = [np.zeros((1, SIZE // 2), dtype=np.uint8)]
    layout = layout_of(signature_of(sent))
    assert [block.lend(n, layout, sent) for n in range(3)] == [0, SIZE // 2, None]
    block.returned(1)
    block.returned(1)
    block.returned(99)
    assert block.lend(3, layout, sent) == SIZE // 2


def test_an_idle_block_gives_its_pages_back_bit_by_bit_but_for_the_first(
    connection: socket.socket,
) -> None:
    size = 8 * 2**20
    budget = Budget(size)
    block = LentBlock(size, budget)
    sent = [np.ones((1, size), dtype=np.uint8)]
    layout = layout_of(signature_of(sent))
    assert block.lend(1, layout, sent) == 0
    for now_s in (0.0, IDLE_S, 3 * IDLE_S):
        block.reported(now_s)
    assert block.backed == size  # it is still being read
    block.returned(1)
    begin_s = 4 * IDLE_S
    for now_s in (begin_s, begin_s + 0.1, begin_s + IDLE_S - 1):
        block.reported(now_s)
    assert block.backed == size  # however many reports come
    for _ in range(9):
        before = block.backed
        block.reported(begin_s + IDLE_S)
        assert before - block.backed <= size // 2
    assert (block.backed, budget.taken) == (KEPT_BYTES, KEPT_BYTES)
    assert 512 * _pages(block) == KEPT_BYTES
    assert block.lend(2, layout, sent) == 0
    assert borrow(connection, block.offer)[size - 1] == 1
    block.close()
    assert budget.taken == 0


def test_pages_are_taken_in_small_steps() -> None:
    block = LentBlock(8 * 2**20)
    sent = [np.zeros((1, 40_000), dtype=np.uint8)]
    layout = layout_of(signature_of(sent))
    steps = []
    for number in range(160):
        before = block.backed
        block.lend(number, layout, sent)
        steps.append(block.backed - before)
    block.close()
    assert steps[0] == STEP_BYTES
    assert max(steps) == LARGE_STEP_BYTES


def test_all_blocks_of_a_process_have_one_budget() -> None:
    budget = Budget(2 * STEP_BYTES)
    blocks = [LentBlock(2**20, budget) for _ in range(3)]
    sent = [np.zeros((1, 40_000), dtype=np.uint8)]
    layout = layout_of(signature_of(sent))
    assert [block.lend(1, layout, sent) for block in blocks] == [0, 0, None]
    assert [block.taken > 0 for block in blocks] == [True, True, False]
    blocks[0].close()
    assert blocks[2].lend(1, layout, sent) == 0
    for block in blocks[1:]:
        block.close()
    assert budget.taken == 0


def test_tensors_that_cannot_be_written_leave_nothing_taken(block: LentBlock) -> None:
    layout = layout_of(signature_of([np.zeros((1, 10), dtype=np.float32)]))
    with pytest.raises(ValueError, match="broadcast"):
        block.lend(1, layout, [np.zeros((1, 11), dtype=np.float32)])
    assert block.taken == 0


def test_arrays_outlive_a_block_that_is_closed() -> None:
    block = LentBlock(SIZE)
    sent = [np.full((1, 100), 7, dtype=np.uint8)]
    layout = layout_of(signature_of(sent))
    block.lend(1, layout, sent)
    array = layout.tensors(block._bytes, 0)[0]
    block.close()
    assert array.tolist() == sent[0].tolist()


@pytest.mark.parametrize("missing", ["os.memfd_create", "fcntl.F_ADD_SEALS"])
def test_interpreters_without_the_calls_go_without(missing: str) -> None:
    """Those that were built for an old C library."""
    code = f"""
import fcntl, os
if "{missing}".startswith("fcntl"):
    for name in [name for name in dir(fcntl) if "SEAL" in name]:
        delattr(fcntl, name)
else:
    del {missing}, os.MFD_CLOEXEC, os.MFD_ALLOW_SEALING
import workers.channel.client, workers.host
print(workers.channel.shared_memory.CAN_SHARE)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr


def _pages(block: LentBlock) -> int:
    return os.fstat(block.handle).st_blocks


def test_nothing_is_lent_where_memory_is_short(
    block: LentBlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    sent = [np.zeros((1, SIZE), dtype=np.uint8)]
    layout = layout_of(signature_of(sent))
    with monkeypatch.context() as patch:
        patch.setattr("os.posix_fallocate", full)
        assert (block.lend(1, layout, sent), block.taken, block.backed) == (None, 0, 0)
    assert block.lend(1, layout, sent) == 0


def test_where_no_block_can_be_made_nothing_is_left_of_it() -> None:
    """A limit on the size of files stops it."""
    code = f"""
import os, resource
from workers.channel.shared_memory import LentBlock
resource.setrlimit(resource.RLIMIT_FSIZE, ({GRANULE}, {GRANULE}))
before = os.listdir("/proc/self/fd")
try:
    LentBlock({SIZE})
except OSError:
    print(os.listdir("/proc/self/fd") == before)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


def test_only_the_block_that_was_offered_is_mapped(
    block: LentBlock, connection: socket.socket, tmp_path: Path
) -> None:
    offer = block.offer
    with (tmp_path / "file").open("w+b") as file:
        file.truncate(SIZE)
        inode = os.fstat(file.fileno()).st_ino
        plain = {"handle": file.fileno(), "inode": inode, "size": SIZE}
        unsealed = os.memfd_create("unsealed")
        os.ftruncate(unsealed, SIZE)
        open_ended = {"handle": unsealed, "inode": os.fstat(unsealed).st_ino, "size": SIZE}
        for wrong in (
            plain, open_ended, {**offer, "inode": 1}, {**offer, "size": SIZE - GRANULE},
            {**offer, "size": 2**40}, {**offer, "size": 0}, {**offer, "handle": "1"}, {},
        ):  # fmt: skip
            with pytest.raises(InvalidInput):
                borrow(connection, wrong)
        os.close(unsealed)
    with pytest.raises(Conflict, match="cannot be opened"):
        borrow(connection, {**offer, "handle": resource.getrlimit(resource.RLIMIT_NOFILE)[0] + 1})
    with socket.socket() as tcp, pytest.raises(Conflict, match="Unix"):
        borrow(tcp, offer)
