"""Why workers that are wanted cannot start: what each takes, and what there is for them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controlplane.views.fleet_status import KindStatus
from variants.figures import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a worker of a kind takes of one machine."""

    cores: int
    gpus: int = 0


def lack_of_room(kinds: Iterable[KindStatus], each: Mapping[str, Room], given: Room) -> str:
    """Why workers of one machine are missing that can never start there; else empty.

    Args:
        each: what one worker takes, by the device kinds that the machine is sliced into.
        given: what workers have in all, since the start.
    """
    rows = tuple(row for row in kinds if row.wanted)
    if not any(row.missing for row in rows):
        return ""
    if other := [row.device_kind for row in rows if row.missing and row.device_kind not in each]:
        return (
            f"no worker {' or '.join(other)} can run on this machine, which is divided into "
            f"{', '.join(sorted(each)) or 'none'}"
        )
    known = [(row.wanted, each[row.device_kind]) for row in rows if row.device_kind in each]
    for noun, needs, has in (
        ("core", sum(count * one.cores for count, one in known), given.cores),
        ("GPU", sum(count * one.gpus for count, one in known), given.gpus),
    ):
        if needs > has:
            return (
                f"the workers that are wanted need {counted(needs, noun)}, and {has} "
                f"{'was' if has == 1 else 'were'} given to workers at the start"
            )
    return ""


def lack_of_nodes(row: KindStatus, each: Room, nodes: Iterable[Room]) -> str:
    """Why workers of a cluster are missing that its nodes have no room for; else empty.

    Args:
        each: what one worker of the kind takes.
        nodes: those where its workers may run, and what they have.
    """
    most = sum(
        min(node.cores // max(each.cores, 1), node.gpus // each.gpus if each.gpus else node.cores)
        for node in nodes
    )
    if not row.missing or row.wanted <= most:
        return ""
    kind = row.device_kind
    room = f"at most {counted(most, 'worker')} {kind}" if most else f"no worker {kind}"
    return f"the nodes that are there have room for {room}; the rest waits for others"
