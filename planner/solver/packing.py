"""Concrete devices from shares of demand: which device runs how much of what.

Whole devices first, each for one option; what remains of every option shares devices with others,
in the order of SLOs: neighbours bear nearly the same batches, so sharing costs them little. Where
memory may be short that wastes it, because a device full of one option has memory left that is not
used. There, small options are put beside a large one, which then fills the time they leave.

Several ways to pack are tried where one needs more devices than the relaxation. Each is given up as
soon as it cannot need fewer than the best one so far.
"""

from collections.abc import Callable, Mapping, Sequence
from math import floor, inf

from planner.solver.capacity import SLACK
from planner.solver.device import Device
from planner.solver.least_devices import LeastDevices
from planner.solver.options import Options
from planner.solver.partial_solution import PartialSolution

Rests = Sequence[tuple[int, float]]
"""Options and the rates of them that have no place yet."""
Order = Callable[[Options, Mapping[int, float]], list[tuple[int, float]]]
"""In which order rests are given a place."""
Choose = Callable[[Options, Device, Rests], int | None]
"""Which of the rests to put on a device next; None when none fits."""

WASTEFUL = 1.1
"""Times what an option takes alone: more than that is sought elsewhere first."""
WINDOW = 48
"""How many of the next in the order are tried for a device."""
CLOSE = 1.003
"""Times the devices given: no other way of packing is tried then."""
HOSTS = 6
"""Large options that a small one is tried beside."""
DUST = 1e-11
"""Relative: rates below this part of a class are none."""


def pack(
    partial: PartialSolution, shares: Mapping[int, float], given: Sequence[float] | None = None
) -> list[int]:
    """Serve these shares of classes by these options.

    What counts do not allow stays missing in the partial solution.

    Args:
        partial solution: Changed in place.
        shares: Per option, the part of its class's whole demand, in [0, 1].
        given: Devices per kind that are enough: several ways to pack are tried to get there.
            Without it, one.

    Returns:
        How many devices each kind would need, in the order of kinds.
    """
    options = partial.options
    wanted = list(partial.opened)
    for kind in range(len(options.counts)):
        rates = {
            index: share * options.rates[options.all[index].demand]
            for index, share in shares.items()
            if options.all[index].kind == kind
        }
        if not rates:
            continue
        best = _apart(options, kind, rates, _tightest, _snug)
        assert best is not None
        if given is not None:
            best = _fewest(options, kind, rates, best, given[kind])
        wanted[kind] += _size(best)
        # The fullest first: if counts cut the plan short, the least is lost.
        for device in sorted(best, key=lambda device: device.left):
            count = min(device.count, partial.openable(kind))
            if count:
                partial.take_in(device, count)
    return wanted


def _fewest(
    options: Options, kind: int, rates: Mapping[int, float], best: list[Device], given: float
) -> list[Device]:
    """The best of several ways to pack one kind; one that needs no more than given ends it.

    Args:
        best: as ``_tightest`` and ``_snug`` pack it.
    """
    orders: tuple[Order, ...] = (_tightest,)
    if options.binds(kind):
        orders = (_tightest, _heaviest, _bulkiest)
    least = LeastDevices(options, kind, rates).devices
    for order in orders:
        for choose in (_snug, _even, None):
            most = _size(best)
            if most <= given * CLOSE or most <= least:
                return best
            if order is _tightest and choose is _snug:
                continue  # that is how the first was found
            plan: list[Device] | None = None
            if choose is not None:
                plan = _apart(options, kind, rates, order, choose, fewer_than=most)
            elif options.binds(kind):
                plan = _together(options, kind, rates, order, fewer_than=most)
            if plan is not None and _size(plan) < most:
                best = plan
    return best


def _size(plan: Sequence[Device]) -> int:
    return sum(device.count for device in plan)


def _apart(
    options: Options,
    kind: int,
    rates: Mapping[int, float],
    order: Order,
    choose: Choose,
    fewer_than: float = inf,
) -> list[Device] | None:
    """Whole devices for one option each, the rests on shared ones; None where that is not fewer."""
    made, rests = _whole(options, kind, rates)
    shared = _shared(options, kind, order(options, rests), choose, fewer_than - _size(made))
    return None if shared is None else made + shared


def _whole(
    options: Options, kind: int, rates: Mapping[int, float]
) -> tuple[list[Device], dict[int, float]]:
    """The devices that one option fills alone, and the rates that remain."""
    made: list[Device] = []
    rests: dict[int, float] = {}
    for index, rate in rates.items():
        rest = rate
        whole = _full_rate(options, index)
        count = floor(rate / whole * (1 + 1e-12)) if whole < inf else 0
        if count:
            device = Device(options, kind)
            device.put(index, options.all[index].alone, whole)
            device.count = count
            made.append(device)
            rest -= whole * count
        if rest > DUST * options.rates[options.all[index].demand]:
            rests[index] = rest
    return made, rests


def _full_rate(options: Options, index: int) -> float:
    """What a device serves that has only this option."""
    unit_ms = options.all[index].alone.unit_ms
    return options.problem.load * 1000 / unit_ms if unit_ms > 0 else inf


def _tightest(options: Options, rates: Mapping[int, float]) -> list[tuple[int, float]]:
    """By SLO."""
    return sorted(
        rates.items(), key=lambda item: (options.left_ms(options.all[item[0]].demand), item[0])
    )


def _heaviest(options: Options, rates: Mapping[int, float]) -> list[tuple[int, float]]:
    """By memory, the most first."""
    return sorted(rates.items(), key=lambda item: (-options.all[item[0]].memory_mib, item[0]))


def _bulkiest(options: Options, rates: Mapping[int, float]) -> list[tuple[int, float]]:
    """By the larger part of a device that it takes, of time or of memory, the most first."""

    def bulk(item: tuple[int, float]) -> tuple[float, int]:
        index, rate = item
        option = options.all[index]
        limit = options.problem.kinds[option.kind].memory_mib
        memory = option.memory_mib / limit if limit else 0.0
        return (-max(memory, rate / _full_rate(options, index)), index)

    return sorted(rates.items(), key=bulk)


def _shared(
    options: Options, kind: int, order: Rests, choose: Choose, fewer_than: float
) -> list[Device] | None:
    """Fill devices one after the other with what remains; None where that is not fewer."""
    rests = list(order)
    made: list[Device] = []
    least = None if fewer_than == inf else LeastDevices(options, kind, dict(rests))
    while rests:
        if least is not None and least.devices >= fewer_than:
            return None
        device = Device(options, kind)
        first, qps = rests.pop(0)
        _take(options, device, first, qps, rests, at=0)
        device.brace()
        while rests:
            found = choose(options, device, rests)
            if found is None:
                break
            index, qps = rests.pop(found)
            _take(options, device, index, qps, rests, at=found)
        device.tighten()
        made.append(device)
        if least is not None:
            least.filled(device)
    return made


def _take(
    options: Options,
    device: Device,
    index: int,
    qps: float,
    rests: list[tuple[int, float]],
    at: int,
) -> None:
    """Put as much as fits; the rest goes back to its place."""
    room = device.room(index)
    assert room is not None
    taken = min(qps, room.qps)
    device.put(index, room.batch, taken)
    device.tighten()
    if qps - taken > DUST * options.rates[options.all[index].demand]:
        rests.insert(at, (index, qps - taken))


def _snug(options: Options, device: Device, rests: Rests) -> int | None:
    """The one that fits whole and fills most; if none fits whole, what loses least by sharing."""
    best: tuple[float, float] | None = None
    found = None
    # What takes less time alone fills less, or wastes too much; what takes more does not fit whole.
    least_ms, most_ms = 0.0, inf
    alone_ms = options.once("alone ms", lambda: [each.alone.unit_ms for each in options.all])
    for at, (index, qps) in enumerate(rests[:WINDOW]):
        alone = alone_ms[index]
        if alone > 0.0 and not least_ms <= alone * qps <= most_ms:
            continue
        room = device.room(index)
        if room is None:
            continue
        waste = room.batch.unit_ms / alone if alone > 0 else 1.0
        whole = qps <= room.qps
        time = min(qps, room.qps) * room.batch.unit_ms
        score = (waste if waste > WASTEFUL else 1.0, -time if whole else 0.0)
        if best is None or score < best:
            best, found = score, at
            if score[0] == 1.0:
                least_ms = time / (WASTEFUL * (1 + SLACK)) if whole else 0.0
                most_ms = device.left * 1000 * (1 + SLACK)
    return found


def _even(options: Options, device: Device, rests: Rests) -> int | None:
    """Which to put on a device next so that its memory and its time run out together.

    What matters is the proportion in which all rests together need the two. Those that fit whole
    come first; one that must be split costs its memory again.
    """
    limit = options.problem.kinds[device.kind].memory_mib
    memory = sum(options.all[index].memory_mib for index, _ in rests) / limit if limit else 0.0
    time = sum(qps * options.all[index].alone.unit_ms for index, qps in rests)
    time /= options.problem.load * 1000
    best: tuple[bool, float] | None = None
    found = None
    for at, (index, qps) in enumerate(rests[:WINDOW]):
        room = device.room(index)
        if room is None:
            continue
        option = options.all[index]
        if room.batch.unit_ms > WASTEFUL * option.alone.unit_ms:
            continue
        held = 0.0 if option.offer in device.offers else option.memory_mib
        taken = min(qps, room.qps) * room.batch.unit_ms / 1000
        memory_left = (device.memory_mib - held) / limit if limit else 0.0
        time_left = (device.left - taken) / options.problem.load
        score = (qps > room.qps, abs(memory_left * time - time_left * memory))
        if best is None or score < best:
            best, found = score, at
    return found


def _together(
    options: Options, kind: int, rates: Mapping[int, float], order: Order, fewer_than: int
) -> list[Device] | None:
    """Small options beside large ones, as long as there are both; the rest apart. None where that
    is not fewer."""
    large = {i: rate for i, rate in rates.items() if rate >= _full_rate(options, i) * (1 - 1e-12)}
    small = order(options, {i: rate for i, rate in rates.items() if i not in large})
    made: list[Device] = []
    alone: dict[int, float] = {}
    least = LeastDevices(options, kind, rates)
    while small:
        if least.devices >= fewer_than:
            return None
        index, rate = small[0]
        device, host = _hosted(options, kind, index, large)
        if device is None:
            alone[index] = rate
            small.pop(0)
            continue
        _add_small(options, device, small)
        room = device.room(host)
        filled = min(large[host], room.qps) if room is not None else 0.0
        if room is not None and filled > 0:
            device.put(host, room.batch, filled)
        large[host] -= device.parts[host][1]
        made.append(device)
        least.filled(device)
        if large[host] < _full_rate(options, host):
            qps = large.pop(host)
            if qps > DUST * options.rates[options.all[host].demand]:
                small = order(options, {**dict(small), host: qps})
    rest = _apart(options, kind, {**alone, **large}, order, _even, fewer_than - len(made))
    return None if rest is None else made + rest


def _hosted(
    options: Options, kind: int, index: int, large: Mapping[int, float]
) -> tuple[Device | None, int]:
    """A device with a large option that bears this small one; its memory is taken, no time yet."""
    left_ms = options.left_ms(options.all[index].demand)

    def distance(host: int) -> float:
        other_ms = options.left_ms(options.all[host].demand)
        return max(left_ms, other_ms) / min(left_ms, other_ms)

    for host in sorted(large, key=lambda host: (distance(host), host))[:HOSTS]:
        device = Device(options, kind)
        device.put(host, options.all[host].alone, _full_rate(options, host) * 1e-6)
        if device.room(index) is not None:
            return device, host
    return None, -1


def _add_small(options: Options, device: Device, small: list[tuple[int, float]]) -> None:
    """The first, then of those that fit whole the ones that take most of the memory."""
    chosen: int | None = 0
    while chosen is not None:
        index, rate = small.pop(chosen)
        _take(options, device, index, rate, small, at=chosen)
        chosen = None
        most = -1.0
        for at, (other, qps) in enumerate(small[:WINDOW]):
            room = device.room(other)
            if room is None or qps > room.qps:
                continue
            if options.all[other].memory_mib > most:
                most, chosen = options.all[other].memory_mib, at
