"""Concrete devices from shares of demand: which device runs how much of what.

Whole devices first, each for one option; what remains of every option shares devices with others,
in the order of SLOs: neighbours bear nearly the same batches, so sharing costs them little. Where
memory may be short that wastes it, because a device full of one option has memory left that nobody
uses. There small options are put beside a large one, which then fills the time they leave.
"""

from collections.abc import Callable, Mapping, Sequence
from math import floor, inf

from planner.draft import Device, Draft
from planner.menu import Menu

Rests = Sequence[tuple[int, float]]
"""Options and the rates of them that have no place yet."""
Order = Callable[[Menu, Mapping[int, float]], list[tuple[int, float]]]
"""In which order rests are given a place."""
Choose = Callable[[Menu, Device, Rests], int | None]
"""Which of the rests to put on a device next; None when none fits."""

WASTEFUL = 1.1
"""Times what an option takes alone: more than that is sought elsewhere first."""
WINDOW = 48
"""How many of the next in the order are tried for a device."""
CLOSE = 1.003
"""Times the devices given: no other way of packing is tried then."""
HOSTS = 6
"""Large options that are tried as company for a small one."""
DUST = 1e-11
"""Relative: rates below this part of a class are none."""


def pack(
    draft: Draft, shares: Mapping[int, float], given: Sequence[float] | None = None
) -> list[int]:
    """Serve these shares of classes by these options; how many devices each kind would need.

    What counts do not allow stays missing in the draft.

    Args:
        draft: Changed in place.
        shares: Per option, the part of its class's whole demand, in [0, 1].
        given: Devices per kind that are enough: several ways to pack are tried to get there.
            Without it, one.
    """
    menu = draft.menu
    wanted = list(draft.opened)
    for kind in range(len(menu.counts)):
        rates = {
            index: share * menu.rates[menu.options[index].demand]
            for index, share in shares.items()
            if menu.options[index].kind == kind
        }
        if not rates:
            continue
        best = _apart(menu, kind, rates, _tightest, _snug)
        if given is not None:
            best = _fewest(menu, kind, rates, best, given[kind])
        wanted[kind] += _size(best)
        # The fullest first: if counts cut the plan short, the least is lost.
        for device in sorted(best, key=lambda device: device.left):
            count = min(device.count, draft.openable(kind))
            if count:
                draft.take_in(device, count)
    return wanted


def _fewest(
    menu: Menu, kind: int, rates: Mapping[int, float], best: list[Device], given: float
) -> list[Device]:
    """The best of several ways to pack one kind; one that needs no more than given ends it."""
    orders: tuple[Order, ...] = (_tightest,)
    if menu.binds(kind):
        orders = (_tightest, _heaviest, _bulkiest)
    for order in orders:
        for choose in (_snug, _even, None):
            if _size(best) <= given * CLOSE:
                return best
            if choose is not None:
                plan = _apart(menu, kind, rates, order, choose)
            elif menu.binds(kind):
                plan = _together(menu, kind, rates, order)
            else:
                continue
            if _size(plan) < _size(best):
                best = plan
    return best


def _size(plan: Sequence[Device]) -> int:
    return sum(device.count for device in plan)


def _apart(
    menu: Menu, kind: int, rates: Mapping[int, float], order: Order, choose: Choose
) -> list[Device]:
    """Whole devices for one option each, the rests on shared ones."""
    made, rests = _whole(menu, kind, rates)
    return made + _shared(menu, kind, order(menu, rests), choose)


def _whole(
    menu: Menu, kind: int, rates: Mapping[int, float]
) -> tuple[list[Device], dict[int, float]]:
    """The devices that one option fills alone, and the rates that remain."""
    made: list[Device] = []
    rests: dict[int, float] = {}
    for index, rate in rates.items():
        rest = rate
        whole = _full_rate(menu, index)
        count = floor(rate / whole * (1 + 1e-12)) if whole < inf else 0
        if count:
            device = Device(menu, kind)
            device.put(index, menu.options[index].alone, whole)
            device.count = count
            made.append(device)
            rest -= whole * count
        if rest > DUST * menu.rates[menu.options[index].demand]:
            rests[index] = rest
    return made, rests


def _full_rate(menu: Menu, index: int) -> float:
    """What a device serves that has only this option."""
    unit_ms = menu.options[index].alone.unit_ms
    return menu.problem.load * 1000 / unit_ms if unit_ms > 0 else inf


def _tightest(menu: Menu, rates: Mapping[int, float]) -> list[tuple[int, float]]:
    """By SLO."""
    return sorted(
        rates.items(), key=lambda item: (menu.left_ms(menu.options[item[0]].demand), item[0])
    )


def _heaviest(menu: Menu, rates: Mapping[int, float]) -> list[tuple[int, float]]:
    """By memory, the most first."""
    return sorted(rates.items(), key=lambda item: (-menu.options[item[0]].memory_mib, item[0]))


def _bulkiest(menu: Menu, rates: Mapping[int, float]) -> list[tuple[int, float]]:
    """By the larger part of a device that it takes, of time or of memory, the most first."""

    def bulk(item: tuple[int, float]) -> tuple[float, int]:
        index, rate = item
        option = menu.options[index]
        limit = menu.problem.kinds[option.kind].memory_mib
        memory = option.memory_mib / limit if limit else 0.0
        return (-max(memory, rate / _full_rate(menu, index)), index)

    return sorted(rates.items(), key=bulk)


def _shared(menu: Menu, kind: int, order: Rests, choose: Choose) -> list[Device]:
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
    if qps - taken > DUST * menu.rates[menu.options[index].demand]:
        rests.insert(at, (index, qps - taken))


def _snug(menu: Menu, device: Device, rests: Rests) -> int | None:
    """The one that fits whole and fills most; if none fits whole, what loses least by sharing."""
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
    memory = sum(menu.options[index].memory_mib for index, _ in rests) / limit if limit else 0.0
    time = sum(qps * menu.options[index].alone.unit_ms for index, qps in rests)
    time /= menu.problem.load * 1000
    best: tuple[bool, float] | None = None
    found = None
    for at, (index, qps) in enumerate(rests[:WINDOW]):
        room = device.room(index)
        if room is None:
            continue
        option = menu.options[index]
        if room.batch.unit_ms > WASTEFUL * option.alone.unit_ms:
            continue
        held = 0.0 if option.offer in device.offers else option.memory_mib
        taken = min(qps, room.qps) * room.batch.unit_ms / 1000
        memory_left = (device.memory_mib - held) / limit if limit else 0.0
        time_left = (device.left - taken) / menu.problem.load
        score = (qps > room.qps, abs(memory_left * time - time_left * memory))
        if best is None or score < best:
            best, found = score, at
    return found


def _together(menu: Menu, kind: int, rates: Mapping[int, float], order: Order) -> list[Device]:
    """Small options beside large ones, as long as there are both; the rest apart."""
    large = {i: rate for i, rate in rates.items() if rate >= _full_rate(menu, i) * (1 - 1e-12)}
    small = order(menu, {i: rate for i, rate in rates.items() if i not in large})
    made: list[Device] = []
    alone: dict[int, float] = {}
    while small:
        index, rate = small[0]
        device, host = _hosted(menu, kind, index, large)
        if device is None:
            alone[index] = rate
            small.pop(0)
            continue
        _add_small(menu, device, small)
        room = device.room(host)
        filled = min(large[host], room.qps) if room is not None else 0.0
        if room is not None and filled > 0:
            device.put(host, room.batch, filled)
        large[host] -= device.parts[host][1]
        made.append(device)
        if large[host] < _full_rate(menu, host):
            rest = large.pop(host)
            if rest > DUST * menu.rates[menu.options[host].demand]:
                small = order(menu, {**dict(small), host: rest})
    return made + _apart(menu, kind, {**alone, **large}, order, _even)


def _hosted(
    menu: Menu, kind: int, index: int, large: Mapping[int, float]
) -> tuple[Device | None, int]:
    """A device with a large option that bears this small one; its memory is taken, no time yet."""
    left_ms = menu.left_ms(menu.options[index].demand)

    def distance(host: int) -> float:
        other_ms = menu.left_ms(menu.options[host].demand)
        return max(left_ms, other_ms) / min(left_ms, other_ms)

    for host in sorted(large, key=lambda host: (distance(host), host))[:HOSTS]:
        device = Device(menu, kind)
        device.put(host, menu.options[host].alone, _full_rate(menu, host) * 1e-6)
        if device.room(index) is not None:
            return device, host
    return None, -1


def _add_small(menu: Menu, device: Device, small: list[tuple[int, float]]) -> None:
    """The first, then of those that fit whole the ones that take most of the memory."""
    chosen: int | None = 0
    while chosen is not None:
        index, rate = small.pop(chosen)
        _take(menu, device, index, rate, small, at=chosen)
        chosen = None
        most = -1.0
        for at, (other, qps) in enumerate(small[:WINDOW]):
            room = device.room(other)
            if room is None or qps > room.qps:
                continue
            if menu.options[other].memory_mib > most:
                most, chosen = menu.options[other].memory_mib, at
