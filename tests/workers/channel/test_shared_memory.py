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

from variants.errors import Conflict, InvalidInput
from workers.channel.extents import GRANULE
from workers.channel.frames import layout_of, signature_of
from workers.channel.shared_memory import CAN_SHARE, IDLE_REPORTS, LentBlock, borrow

pytestmark = pytest.mark.skipif(not CAN_SHARE, reason="Linux only")
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


def test_an_idle_block_gives_its_pages_back(block: LentBlock, connection: socket.socket) -> None:
    sent = [np.ones((1, 100), dtype=np.uint8)]
    layout = layout_of(signature_of(sent))
    block.lend(1, layout, sent)
    for _ in range(IDLE_REPORTS + 1):
        block.reported()
    assert _pages(block) > 0  # it is still being read
    block.returned(1)
    for _ in range(IDLE_REPORTS + 1):
        block.reported()
    assert (block.backed, _pages(block)) == (0, 0)
    assert block.lend(2, layout, sent) == 0
    assert borrow(connection, block.offer)[0] == 1


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
