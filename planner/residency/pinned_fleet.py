"""How many workers it takes to hold what is pinned, and whether any fleet could hold it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from planner.residency.pins import Arrangement, arrange, pins_of, sizes_of
from planner.types import Observation, WorkerReport
from variants.types import CatalogSnapshot, DeviceKind, DeviceKindName, WorkerId

Counts = Mapping[DeviceKindName, int]


def held_by(catalog: CatalogSnapshot, counts: Counts) -> Arrangement:
    """How so many workers of each kind would hold what is pinned, if nothing else were there."""
    return arrange(catalog, _empty(catalog.device_kinds, counts))


def pinned_least(
    catalog: CatalogSnapshot, most: Counts, least: Counts
) -> dict[DeviceKindName, int]:
    """Fewest workers of each kind, so that they hold of what is pinned as much as any could.

    To those that are there anyway come as many of the cheapest as each pin needs by itself, and
    then one by one those that hold more.

    Args:
        most: upper bound for each kind.
        least: of the workers that are there anyway.
    """
    counts = {kind: min(count, least.get(kind, 0)) for kind, count in most.items()}
    if not pins_of(catalog.rules):
        return counts
    prices = {kind.name: kind.usd_per_hour for kind in catalog.device_kinds}
    kinds = sorted((kind for kind in most if kind in prices), key=lambda k: (prices[k], k))
    counts = _one_for_each_replica(catalog, kinds, most, counts)
    missing = _missing(held_by(catalog, counts))
    while missing:
        for kind in kinds:
            more, left = _that_hold_more(catalog, counts, kind, most[kind] - counts[kind], missing)
            if more:
                counts, missing = {**counts, kind: counts[kind] + more}, left
                break
        else:
            break
    return counts


def _that_hold_more(
    catalog: CatalogSnapshot, counts: Counts, kind: DeviceKindName, most: int, missing: int
) -> tuple[int, int]:
    """How many more workers of a kind hold as much more each as the first of them, and how many
    replicas are missing with these.

    A step takes twice as many as the one before, for as long as that is so: one arrangement for
    each worker would take minutes where hundreds are needed.
    """

    def left(more: int) -> int:
        return _missing(held_by(catalog, {**counts, kind: counts[kind] + more}))

    each = missing - left(1) if most > 0 else 0
    if each <= 0:
        return 0, missing
    more = step = 1
    while more + step <= most and left(more + step) == missing - each * (more + step):
        more, step = more + step, 2 * step
    while step > 1:
        step //= 2
        if more + step <= most and left(more + step) == missing - each * (more + step):
            more += step
    return more, missing - each * more


def _one_for_each_replica(
    catalog: CatalogSnapshot, kinds: Sequence[DeviceKindName], most: Counts, least: Counts
) -> dict[DeviceKindName, int]:
    """The workers that pins need were each of them the only one: one for each of its replicas.

    Args:
        kinds: the cheapest first.
    """
    sizes = sizes_of(catalog)
    rooms = {kind.name: kind.memory_mib for kind in catalog.device_kinds}
    counts = dict(least)
    for rule in pins_of(catalog.rules):
        able = [
            kind
            for kind in kinds
            if rule.device_kind in ("", kind)
            and (size_mib := sizes.get((kind, rule.key))) is not None
            and size_mib <= rooms[kind]
        ]
        wanted = rule.replicas - sum(counts[kind] for kind in able)
        for kind in able:
            more = max(0, min(wanted, most[kind] - counts[kind]))
            counts[kind] += more
            wanted -= more
    return counts


def pinning_layouts(observation: Observation) -> Observation:
    """The same, without the layouts of a machine whose workers hold less of what is pinned than
    those of another one."""
    if not pins_of(observation.catalog.rules):
        return observation
    missing = [_missing(held_by(observation.catalog, one)) for one in observation.layouts]
    pairs = zip(observation.layouts, missing, strict=True)
    worse = tuple(layout for layout, count in pairs if count > min(missing))
    return replace(observation, refused=(*observation.refused, *worse))


def _missing(found: Arrangement) -> int:
    return sum(lack.rule.replicas - lack.held for lack in found.lacks)


def _empty(kinds: Iterable[DeviceKind], counts: Counts) -> Iterator[WorkerReport]:
    for kind in kinds:
        for number in range(counts.get(kind.name, 0)):
            yield WorkerReport(
                id=WorkerId(f"{kind.name}-{number:05}"),
                device_kind=kind.name,
                memory_mib=kind.memory_mib,
            )
