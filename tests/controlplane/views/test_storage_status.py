"""Whether what has to be kept can be written."""

import pytest

from controlplane.views.storage_status import (
    StorageLevel,
    all_rooms,
    nearly_full,
    plain,
    storage_status,
)
from variants.disk import DiskRoom

MIB, GIB = 2**20, 2**30


def room(free_bytes: int, size_bytes: int = 100 * GIB, host: str = "h1") -> DiskRoom:
    return DiskRoom(
        of="state", folder="/srv", host=host, free_bytes=free_bytes, size_bytes=size_bytes
    )


@pytest.mark.parametrize(
    ("free_bytes", "size_bytes", "full"),
    [
        (2 * GIB, 100 * GIB, False),
        (GIB - 1, 100 * GIB, True),
        (60 * MIB, GIB, False),
        (50 * MIB, GIB, True),
        (0, 0, False),
    ],
)
def test_a_disk_is_nearly_full_by_its_share_and_its_bytes(
    free_bytes: int, size_bytes: int, full: bool
) -> None:
    assert nearly_full(room(free_bytes, size_bytes)) is full


def test_all_is_well() -> None:
    status = storage_status([room(2 * GIB)])
    assert (status.level, status.sentence) == (StorageLevel.WRITABLE, "")


def test_a_disk_that_is_nearly_full_is_named_with_its_room() -> None:
    status = storage_status([room(3 * MIB, 200 * MIB)])
    assert (status.level, status.sentence) == (
        StorageLevel.NEARLY_FULL,
        "The disk of the state directory has 3 of 200 MiB free (/srv on h1): free some space.",
    )


def test_a_catalog_that_cannot_be_written_is_worse() -> None:
    status = storage_status([room(0)], "database or disk is full.")
    assert status.level is StorageLevel.UNWRITABLE
    assert status.sentence.startswith(
        "The catalog cannot be written (database or disk is full): queries go on, new plans, "
        "registrations and changes are not kept. The disk of the state directory has 0 of "
    )


def test_a_slow_catalog_is_told_unless_it_takes_nothing_at_all() -> None:
    slow = storage_status([room(2 * GIB)], slow_ms=512.4)
    both = storage_status([room(0)], slow_ms=512.4)
    unwritable = storage_status([room(2 * GIB)], "the disk is full", 512.4)
    assert (slow.level, slow.sentence) == (
        StorageLevel.SLOW,
        "The catalog takes 512 ms to give one row: queries go on, plans, registrations and "
        "commands take longer.",
    )
    assert (both.level, both.sentence.startswith(slow.sentence)) == (StorageLevel.NEARLY_FULL, True)
    assert (unwritable.level, "512" in unwritable.sentence) == (StorageLevel.UNWRITABLE, False)


def test_a_slow_live_state_is_told_unless_it_takes_nothing_at_all() -> None:
    slow = storage_status([room(2 * GIB)], live_slow_ms=740.4)
    lost = storage_status([room(2 * GIB)], refused="Redis does not answer", live_slow_ms=740.4)
    assert (slow.level, slow.sentence) == (
        StorageLevel.SLOW,
        "The live state (Redis or Valkey) takes 740 ms to give one key: queries go on, gateways "
        "hear of new workers and plans of the demand later, commands take longer.",
    )
    assert (lost.level, "740" in lost.sentence) == (StorageLevel.LIVE_STATE_LOST, False)


def test_a_live_state_that_takes_nothing_is_told_and_a_catalog_that_takes_nothing_is_worse() -> (
    None
):
    why = "the live state (Redis or Valkey) refuses: command not allowed"
    lost = storage_status([room(2 * GIB)], refused=why)
    both = storage_status([room(2 * GIB)], "the disk is full", refused=why)
    assert (lost.level, lost.sentence) == (
        StorageLevel.LIVE_STATE_LOST,
        "The live state (Redis or Valkey) refuses: command not allowed: queries go on with the "
        "workers that gateways know, new workers are not told to them, and plans do not follow "
        "the demand.",
    )
    assert (both.level, lost.sentence in both.sentence) == (StorageLevel.UNWRITABLE, True)


def test_the_disks_of_the_control_loop_count_where_they_are_others() -> None:
    own, other = room(1), room(2, host="h2")
    told = {"rooms": plain([room(3), other])}
    told["rooms"][1]["of_a_later_release"] = True
    assert all_rooms([own], told) == (own, other)
    assert all_rooms([own], None) == (own,)
