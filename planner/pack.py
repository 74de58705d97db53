"""Concrete devices from shares of demand: which device runs how much of what.

Whole devices first, each for one option; what remains of every option shares devices with others,
in the order of SLOs: neighbours bear nearly the same batches, so sharing costs them little. Where
memory is short, the order is that of memory, and a device is filled with what fits best.
"""

from collections.abc import Callable, Mapping, Sequence
from math import floor, inf

from planner.draft import Device, Draft, Room
from planner.menu import Menu

WASTEFUL = 1.1
"""Times what an option takes alone: more than that is sought elsewhere first."""
Rests = Sequence[tuple[int, float]]
"""Options and the rates of them that have no place yet."""
Choose = Callable[[Menu, Device, Rests], int | None]
"""Which of the rests to put on a device next; None when none fits."""

WINDOW = 24
"""How many neighbours in the order are tried for a device."""


def pack(draft: Draft, shares: Mapping[int, float]) -> list[int]:
    """Serve these shares of classes by these options; how many devices each kind would need.

    What counts do not allow stays missing in the draft.

    Args:
        draft: Changed in place; its devices are filled first.
        shares: Per option, the part of its class's whole demand, in [0, 1].
    """
    menu = draft.menu
    wanted = [0] * len(menu.counts)
    for kind in range(len(menu.counts)):
        mine = {i: share for i, share in shares.items() if menu.options[i].kind == kind}
        if not mine:
            continue
        rests = _whole_devices(draft, kind, mine)
        plans = [_shared(menu, kind, order, _snug) for order in _orders(menu, rests)]
        if len(plans) > 1:
            plans += [_shared(menu, kind, order, _even) for order in _orders(menu, rests)]
        best = min(plans, key=len)
        wanted[kind] = draft.opened[kind] + len(best)
        # The fullest first: if counts cut the plan short, the least is lost.
        for device in sorted(best, key=lambda device: device.left):
            if not draft.openable(kind):
                break
            opened = draft.open(kind)
            for index, (batch, qps) in device.parts.items():
                draft.serve(opened, index, Room(batch, qps), qps)
    return wanted


def _whole_devices(draft: Draft, kind: int, shares: Mapping[int, float]) -> dict[int, float]:
    """Open the devices that one option fills alone; rates that remain come back, per option."""
    menu = draft.menu
    rests: dict[int, float] = {}
    for index, share in shares.items():
        option = menu.options[index]
        rate = share * menu.rates[option.demand]
        whole = menu.problem.load * 1000 / option.alone.unit_ms if option.alone.unit_ms else inf
        count = min(draft.openable(kind), floor(rate / whole * (1 + 1e-12))) if whole < inf else 0
        if count:
            device = Device(menu, kind)
            device.put(index, option.alone, whole)
            draft.take_in(device, count)
            rate -= whole * count
        if rate > 1e-11 * menu.rates[option.demand]:
            rests[index] = rate
    return rests


def _orders(menu: Menu, rests: Mapping[int, float]) -> list[list[tuple[int, float]]]:
    by_slo = sorted(
        rests.items(), key=lambda item: (menu.left_ms(menu.options[item[0]].demand), item[0])
    )
    if not rests or not menu.binds(menu.options[next(iter(rests))].kind):
        return [by_slo]
    by_memory = sorted(by_slo, key=lambda item: -menu.options[item[0]].memory_mib)
    return [by_slo, by_memory]


def _shared(
    menu: Menu, kind: int, order: Sequence[tuple[int, float]], choose: Choose
) -> list[Device]:
    """Fill devices one after the other with what remains."""
    rests = list(order)
    made: list[Device] = []
    while rests:
        device = Device(menu, kind)
        first, qps = rests.pop(0)
        _take(menu, device, first, qps, rests, at=0)
        while rests:
            found = choose(menu, device, rests)
            if found is None:
                break
            index, qps = rests.pop(found)
            _take(menu, device, index, qps, rests, at=found)
        made.append(device)
    return made


def _take(
    menu: Menu, device: Device, index: int, qps: float, rests: list[tuple[int, float]], at: int
) -> None:
    """Put as much as fits; the rest goes back to its place."""
    room = device.room(index)
    assert room is not None
    taken = min(qps, room.qps)
    device.put(index, room.batch, taken)
    device.tighten()
    if qps - taken > 1e-11 * menu.rates[menu.options[index].demand]:
        rests.insert(at, (index, qps - taken))


def _snug(menu: Menu, device: Device, rests: Rests) -> int | None:
    """Which of the next in the order to put on a device; None when none fits.

    The one that fits whole and fills most; if none fits whole, the one that loses least by sharing.
    """
    best: tuple[float, float] | None = None
    found = None
    for at, (index, qps) in enumerate(rests[:WINDOW]):
        room = device.room(index)
        if room is None:
            continue
        alone = menu.options[index].alone.unit_ms
        waste = room.batch.unit_ms / alone if alone > 0 else 1.0
        whole = qps <= room.qps
        time = min(qps, room.qps) * room.batch.unit_ms
        score = (waste if waste > WASTEFUL else 1.0, -time if whole else 0.0)
        if best is None or score < best:
            best, found = score, at
    return found


def _even(menu: Menu, device: Device, rests: Rests) -> int | None:
    """Which to put on a device next so that its memory and its time run out together.

    What matters is the proportion in which all rests together need the two. Those that fit whole
    come first; one that must be split costs its memory again.
    """
    limit = menu.problem.kinds[device.kind].memory_mib
    memory = sum(menu.options[index].memory_mib for index, _ in rests) / limit
    time = sum(qps * menu.options[index].alone.unit_ms for index, qps in rests)
    time /= menu.problem.load * 1000
    best: tuple[bool, float] | None = None
    found = None
    for at, (index, qps) in enumerate(rests[: 2 * WINDOW]):
        room = device.room(index)
        if room is None:
            continue
        option = menu.options[index]
        if room.batch.unit_ms > WASTEFUL * option.alone.unit_ms:
            continue
        held = 0.0 if option.offer in device.offers else option.memory_mib
        taken = min(qps, room.qps) * room.batch.unit_ms / 1000
        memory_left = (device.memory_mib - held) / limit
        time_left = (device.left - taken) / menu.problem.load
        uneven = abs(memory_left * time - time_left * memory)
        score = (qps > room.qps, uneven)
        if best is None or score < best:
            best, found = score, at
    return found
