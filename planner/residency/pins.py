"""Pins: which worker holds what operators have pinned.

Pins come before all else that a worker holds. Each replica goes where it is already. Where that
leaves one without room, all arrangements are tried: then as many of each pin are held as have room
beside those of the pins before it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from planner.selection.eligibility import forbidding, kept_out, stage_answers
from planner.sentences import not_in_service
from planner.types import WorkerReport
from variants.figures import counted, figure
from variants.types import (
    CatalogSnapshot,
    DeviceKindName,
    Placement,
    ReplicaState,
    Rule,
    RuleKind,
    VariantKey,
    WorkerId,
)
from variants.working_memory import counted_mib

MOST_STEPS = 20_000
"""Tries of one replica on one worker, at one look at all arrangements together."""

Sizes = Mapping[tuple[DeviceKindName, VariantKey], float]
"""What pinned variants take in MiB on each device kind where they may run."""
Held = Mapping[WorkerId, tuple[VariantKey, ...]]
"""What is pinned to each worker; workers without anything are missing."""


class Lack(NamedTuple):
    """A pin that is not held by as many workers as it asks for."""

    rule: Rule
    held: int
    why: str

    @property
    def sentence(self) -> str:
        rule = self.rule
        where = f" on {rule.device_kind}" if rule.device_kind else ""
        return (
            f"Of pin {rule.id}, {rule.task}/{rule.variant}{where}, {self.held} of "
            f"{counted(rule.replicas, 'replica')} can be held: {self.why}."
        )


class Arrangement(NamedTuple):
    """Where pinned variants are held."""

    held: Held
    lacks: tuple[Lack, ...] = ()
    sure: bool = True
    """Whether no arrangement would hold more; False where there were too many to try."""


NOTHING: Arrangement = Arrangement({})


def pins_of(rules: Iterable[Rule]) -> list[Rule]:
    """The pins among rules by id; of one variant, those of a device kind come first, because they
    count for the others as well."""
    found = sorted([one for one in rules if one.kind is RuleKind.PIN], key=lambda one: one.id)
    first: dict[VariantKey, int] = {}
    for rule in found:
        first.setdefault(rule.key, rule.id)
    return sorted(found, key=lambda one: (first[one.key], not one.device_kind, one.id))


def sizes_of(catalog: CatalogSnapshot) -> Sizes:
    """What each pinned variant takes wherever it may run at all."""
    pinned = {rule.key for rule in catalog.rules if rule.kind is RuleKind.PIN}
    if not pinned:
        return {}
    stages = {(v.task, v.model, v.version): v.stage for v in catalog.versions}
    answering = {
        variant.key
        for variant in catalog.variants
        if variant.key in pinned
        and stage_answers(stages[variant.task, variant.model, variant.version])
    }
    kinds = {kind.name: kind for kind in catalog.device_kinds}
    return {
        (profile.device_kind, key): counted_mib(profile, kinds[profile.device_kind])
        for profile in catalog.profiles
        if (key := (profile.task, profile.variant)) in answering
        and profile.device_kind in kinds
        and forbidding(catalog.rules, key, profile.device_kind) is None
    }


def arrange(
    catalog: CatalogSnapshot,
    workers: Iterable[WorkerReport],
    before: Iterable[Placement] = (),
    beside_mib: Mapping[WorkerId, float] | None = None,
) -> Arrangement:
    """Where each pinned variant is held, by the workers that do not drain.

    The pinned variants of a worker fit into its memory together. The same arguments give the same
    arrangement, and one that is carried out stays.

    Args:
        before: the plan so far; what it placed stays rather than moves.
        beside_mib: what of a worker's memory other variants have, whatever is pinned.
    """
    pins = pins_of(catalog.rules)
    if not pins:
        return NOTHING
    placed = {(one.worker, one.task, one.variant) for one in before}
    sizes = sizes_of(catalog)
    hosts = [
        _Host(worker, sizes, placed, (beside_mib or {}).get(worker.id, 0.0))
        for worker in sorted(workers, key=lambda report: report.id)
        if not worker.draining
    ]
    sure = _take_where_it_is(pins, hosts) or _take_in_order(pins, hosts)
    held = {host.id: tuple(host.held) for host in hosts if host.held}
    return Arrangement(held, tuple(_lacks(catalog, pins, hosts, sizes)), sure)


def _take_where_it_is(pins: Sequence[Rule], hosts: Sequence["_Host"]) -> bool:
    """Pin each replica to the worker where it costs least; whether that held all of them."""
    complete = True
    for rule in pins:
        own = [host for host in hosts if _is_of(rule, host.kind)]
        wanted = max(0, rule.replicas - sum(rule.key in host.held for host in own))
        found = _preferred(rule.key, own)[:wanted]
        for host in found:
            host.take(rule.key)
        complete = complete and len(found) == wanted
    return complete


def _take_in_order(pins: Sequence[Rule], hosts: Sequence["_Host"]) -> bool:
    """Pin as many replicas of each pin as have room beside those of the pins before it.

    Where that takes too many steps, all is left as it is; returns whether it did not.
    """
    accepted: dict[int, int] = {}
    found: dict[WorkerId, dict[VariantKey, float]] = {}
    as_it_was = {host.id: host.held for host in hosts}
    steps = MOST_STEPS
    for host in hosts:
        host.held = {}
    for rule in pins:
        able = sum(host.could(rule.key) for host in hosts if _is_of(rule, host.kind))
        for count in range(min(rule.replicas, able), 0, -1):
            more, steps = _searched(_slots(pins, {**accepted, rule.id: count}), hosts, steps)
            if more is not None:
                accepted[rule.id], found = count, more
                break
            if not steps:
                break
    for host in hosts:
        host.held = found.get(host.id, {}) if steps else as_it_was[host.id]
    return steps > 0


def _slots(pins: Iterable[Rule], counts: Mapping[int, int]) -> list["_Slot"]:
    """The replicas that hold so many of each pin: those of one device kind count for all."""
    slots: list[_Slot] = []
    of_kinds: dict[VariantKey, int] = {}
    for rule in sorted(pins, key=lambda one: not one.device_kind):
        count = counts.get(rule.id, 0)
        if rule.device_kind:
            of_kinds[rule.key] = of_kinds.get(rule.key, 0) + count
        else:
            count = max(0, count - of_kinds.get(rule.key, 0))
        slots += [_Slot(rule.key, rule.device_kind)] * count
    return slots


class _Slot(NamedTuple):
    """One replica that is to be held."""

    key: VariantKey
    device_kind: DeviceKindName


class _Host:
    """A worker, and what is pinned to it so far."""

    def __init__(
        self,
        report: WorkerReport,
        sizes: Sizes,
        placed: Collection[tuple[WorkerId, str, str]],
        beside_mib: float,
    ) -> None:
        self.id, self.kind = report.id, report.device_kind
        self.room_mib = report.memory_mib - beside_mib
        self.held: dict[VariantKey, float] = {}
        """What it takes in MiB, in the order in which it was pinned."""
        self._sizes = sizes
        self._placed = placed
        self._reported = {(one.task, one.variant): one for one in report.replicas}
        self.kept_out = kept_out(report)
        used_mib = max(report.reserved_mib, sum(one.memory_mib for one in report.replicas))
        self._free_mib = report.memory_mib - used_mib

    def size_mib(self, key: VariantKey) -> float | None:
        """What a variant takes here; None where it may not run."""
        size_mib = self._sizes.get((self.kind, key))
        if size_mib is None or key in self.kept_out:
            return None
        known = self._reported.get(key)
        return size_mib if known is None else max(size_mib, known.memory_mib)

    def could(self, key: VariantKey) -> bool:
        """Whether it could hold the variant, if nothing else were pinned."""
        size_mib = self.size_mib(key)
        return size_mib is not None and size_mib <= self.room_mib

    @property
    def left_mib(self) -> float:
        return self.room_mib - sum(self.held.values())

    def has_room(self, key: VariantKey) -> bool:
        size_mib = self.size_mib(key)
        return size_mib is not None and size_mib <= self.left_mib

    def take(self, key: VariantKey) -> None:
        size_mib = self.size_mib(key)
        assert size_mib is not None
        self.held[key] = size_mib

    def rank(self, key: VariantKey) -> tuple[bool, bool, bool, bool, float, WorkerId]:
        """Less is better: where it is and was planned, where nothing has to leave for it."""
        known = self._reported.get(key)
        there = known is not None and known.state in (ReplicaState.READY, ReplicaState.LOADING)
        planned = (self.id, *key) in self._placed
        free = (self.size_mib(key) or 0.0) <= self._free_mib
        return (
            not (there and planned), not planned, not there, not free, -self.left_mib, self.id,
        )  # fmt: skip


def _is_of(rule: Rule, kind: DeviceKindName) -> bool:
    return not rule.device_kind or rule.device_kind == kind


def _preferred(key: VariantKey, hosts: Iterable[_Host]) -> list[_Host]:
    """The workers that may take one more replica, the best first."""
    able = [host for host in hosts if key not in host.held and host.has_room(key)]
    return sorted(able, key=lambda host: host.rank(key))


def _searched(
    slots: Sequence[_Slot], hosts: Sequence[_Host], steps: int
) -> tuple[dict[WorkerId, dict[VariantKey, float]] | None, int]:
    """An arrangement of all replicas, by trying; None where there is none, or no steps are left.

    Large ones are tried first. Equal ones go to workers in one order, as their exchange changes
    nothing.

    Returns:
        It, and the steps that are left: 0 where they did not suffice.
    """
    ranks = {
        slot: sorted(
            (host.rank(slot.key), at)
            for at, host in enumerate(hosts)
            if host.could(slot.key) and slot.device_kind in ("", host.kind)
        )
        for slot in set(slots)
    }
    keys = {slot.key for slot in slots}
    sizes_mib = [{key: host.size_mib(key) or 0.0 for key in keys} for host in hosts]
    largest = {slot: max((sizes_mib[at][slot.key] for _, at in ranks[slot]), default=0.0)
               for slot in ranks}  # fmt: skip
    ordered = sorted(slots, key=lambda one: (-largest[one], one.key, not one.device_kind, one))
    held: list[dict[VariantKey, float]] = [{} for _ in hosts]
    options = [ranks[slot] for slot in ordered]
    tried = [0] * len(ordered)
    chosen = [-1] * len(ordered)
    at = 0
    while 0 <= at < len(ordered):
        key = ordered[at].key
        if chosen[at] >= 0:  # it was tried there; now elsewhere
            held[chosen[at]].pop(key)
            chosen[at] = -1
        for number in range(tried[at], len(options[at])):
            if steps <= 0:
                return None, 0
            steps -= 1
            host = options[at][number][1]
            size_mib = sizes_mib[host][key]
            here = held[host]
            if key not in here and size_mib <= hosts[host].room_mib - sum(here.values()):
                here[key] = size_mib
                tried[at], chosen[at] = number + 1, host
                break
        if chosen[at] < 0:
            at -= 1
            continue
        at += 1
        if at < len(ordered):
            same = ordered[at] == ordered[at - 1]
            tried[at] = tried[at - 1] if same else 0
    if at < 0:
        return None, steps
    return {host.id: one for host, one in zip(hosts, held, strict=True)}, steps


def _lacks(
    catalog: CatalogSnapshot, pins: Iterable[Rule], hosts: Sequence[_Host], sizes: Sizes
) -> Iterable[Lack]:
    for rule in sorted(pins, key=lambda one: one.id):
        own = [host for host in hosts if _is_of(rule, host.kind)]
        held = sum(rule.key in host.held for host in own)
        if held < rule.replicas:
            yield Lack(rule, held, _why(catalog, rule, own, sizes))


def _why(catalog: CatalogSnapshot, rule: Rule, own: Sequence[_Host], sizes: Sizes) -> str:
    """Why a pin is not held by more workers."""
    if (never := why_nowhere(catalog, rule)) is not None:
        return never
    able = [host for host in own if (host.kind, rule.key) in sizes]
    if not able:
        kinds = sorted(kind for kind, key in sizes if key == rule.key and _is_of(rule, kind))
        return f"no worker of {' or '.join(kinds)} is running"
    if bad := [host.id for host in able if rule.key in host.kept_out]:
        return f"it is in quarantine, or failed to load, on {', '.join(bad[:5])}"
    if len(able) < rule.replicas:
        verb = "is" if len(able) == 1 else "are"
        return f"only {counted(len(able), 'worker')} that could hold it {verb} running"
    need_mib = min(sizes[host.kind, rule.key] for host in able)
    return f"it needs {figure(need_mib)} MiB, which no other worker has beside what is pinned there"


def why_nowhere(catalog: CatalogSnapshot, rule: Rule) -> str | None:
    """Why the variant of a pin can run on no worker of its kind, whatever there is; else None."""
    variant = next((one for one in catalog.variants if one.key == rule.key), None)
    if variant is None:
        return "there is no such variant"
    version = (variant.task, variant.model, variant.version)
    stage = next(v.stage for v in catalog.versions if (v.task, v.model, v.version) == version)
    if not stage_answers(stage):
        return not_in_service(variant, stage)
    profiled = [
        profile.device_kind
        for profile in catalog.profiles
        if (profile.task, profile.variant) == rule.key and _is_of(rule, profile.device_kind)
    ]
    if not profiled:
        return f"it has no profile on {rule.device_kind or 'any device kind'}"
    forbids = [forbidding(catalog.rules, rule.key, kind) for kind in profiled]
    if (forbid := forbids[0]) is not None and all(forbids):
        return f"rule {forbid.id} forbids it"
    return None
