"""StorageStatus: whether what has to be kept can be written, as one sentence.

Queries are answered from memory, so they go on while a disk is full or the database takes nothing:
registrations, plans and events are lost for want of it, and nobody would notice. The page,
``modelless status`` and ``GET /v1/plan`` show what is decided here, and the control loop tells
events of it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from variants.disk import DiskRoom
from variants.figures import figure

LEAST_SHARE = 0.05
LEAST_BYTES = 2**30
"""A disk with less free than both is nearly full: a twentieth of a large disk still takes what a
registration and a day of logs write, and on a small one a GiB was never free."""
FULL_BYTES = 4 * 2**20
"""A disk with less free takes no transaction of some size: as much as `modelless up` asks for."""
BEGIN = {
    "state": "The disk of the state directory",
    "artifacts": "The disk of the artifacts",
    "copies": "The disk of the copies of artifacts",
}


LIVE_STATE_SLOW = (
    "queries go on, gateways hear of new workers and plans of the demand later, commands take "
    "longer"
)


class StorageLevel(StrEnum):
    """Whether what has to be kept can be written."""

    WRITABLE = "writable"
    SLOW = "slow"
    """The catalog, or the live state, takes long to answer."""
    NEARLY_FULL = "nearly_full"
    """Some disk soon takes no more."""
    LIVE_STATE_LOST = "live_state_lost"
    """Redis or Valkey does not answer, or takes nothing."""
    UNWRITABLE = "unwritable"
    """The catalog takes nothing now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageStatus:
    """Whether what has to be kept can be written."""

    level: StorageLevel
    sentence: str
    """Empty where all is well."""


def nearly_full(room: DiskRoom, beyond: float = 1.0) -> bool:
    """Whether a disk has so little free that somebody should look at it.

    ``beyond``: with so many times as much free, too.
    """
    return room.free_bytes < beyond * min(LEAST_SHARE * room.size_bytes, LEAST_BYTES)


def full(room: DiskRoom) -> bool:
    """Whether a disk may not even take what the catalog writes next."""
    return room.free_bytes < FULL_BYTES


def storage_status(
    rooms: Iterable[DiskRoom],
    unwritable: str = "",
    slow_ms: float = 0.0,
    refused: str = "",
    live_slow_ms: float = 0.0,
) -> StorageStatus:
    """Judge the disks, and what the control loop said of its last attempts to read and write.

    Args:
        unwritable: why the catalog cannot be written; empty where it can, or nobody knows.
        slow_ms: how long the catalog takes to answer; 0 where that is not long, or nobody knows.
        refused: why the live state takes nothing of what is written; empty where it does.
        live_slow_ms: how long it takes to answer, as ``slow_ms``.
    """
    full = [room_words(room) for room in rooms if nearly_full(room)]
    level = StorageLevel.NEARLY_FULL if full else StorageLevel.WRITABLE
    sentences = []
    if slow_ms and not unwritable:
        level = StorageLevel.NEARLY_FULL if full else StorageLevel.SLOW
        sentences.append(
            f"The catalog takes {slow_ms:,.0f} ms to give one row: queries go on, plans, "
            "registrations and commands take longer."
        )
    if live_slow_ms and not refused:
        level = StorageLevel.NEARLY_FULL if full else StorageLevel.SLOW
        sentences.append(
            f"The live state (Redis or Valkey) takes {live_slow_ms:,.0f} ms to give one key: "
            f"{LIVE_STATE_SLOW}."
        )
    if refused:
        level = StorageLevel.LIVE_STATE_LOST
        sentences.append(
            f"{refused[:1].upper()}{refused[1:].rstrip('.')}: queries go on with the workers that "
            "gateways know, new workers are not told to them, and plans do not follow the demand."
        )
    if unwritable:
        level = StorageLevel.UNWRITABLE
        sentences.append(
            f"The catalog cannot be written ({unwritable.rstrip('.')}): queries go on, new plans, "
            "registrations and changes are not kept."
        )
    sentences += [f"{words}: free some space." for words in full]
    return StorageStatus(level=level, sentence=" ".join(sentences))


def room_words(room: DiskRoom) -> str:
    """``The disk of the state directory has 3.1 of 20,480 MiB free (/srv/modelless on host-1)``."""
    what = BEGIN.get(room.of, f"The disk of {room.of}")
    free, size = _mib(room.free_bytes), _mib(room.size_bytes)
    where = f"{room.folder} on {room.host}"
    return f"{what} has {free} of {size} MiB free ({where})"


def _mib(size_bytes: int) -> str:
    mib = size_bytes / 2**20
    return f"{mib:,.0f}" if mib >= 10 else figure(mib)


def all_rooms(own: Iterable[DiskRoom], told: Mapping[str, Any] | None) -> tuple[DiskRoom, ...]:
    """The disks of this machine, and those that the control loop told of where it is on another.

    Args:
        told: what the control loop told of itself (``controlplane.controller.events.loop_report``).
    """
    here = tuple(own)
    hosts = {room.host for room in here}
    others = (told or {}).get("rooms", ())
    known = [each.name for each in fields(DiskRoom)]  # of another release there may be more
    rooms = (DiskRoom(**{name: one[name] for name in known}) for one in others)
    return here + tuple(room for room in rooms if room.host not in hosts)


def plain(rooms: Iterable[DiskRoom]) -> list[dict[str, Any]]:
    """Rooms as ``all_rooms`` reads them again."""
    return [asdict(room) for room in rooms]
