"""Which worker holds what is pinned."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.residency.pinned_fleet import held_by, pinned_least, pinning_layouts
from planner.residency.pins import Arrangement, arrange
from planner.types import WorkerReport
from tests.planner.builders import (
    catalog,
    kind,
    observation,
    placement,
    profile,
    replica,
    report,
    variant,
)
from tests.planner.residency.builders import forbid, pin, ruled, sized
from variants.types import (
    CatalogSnapshot,
    DeviceKind,
    DeviceKindName,
    ReplicaState,
    Rule,
    Stage,
    VariantKey,
    VariantName,
)

CPU, GPU = DeviceKindName("cpu-1"), DeviceKindName("gpu-a")


def held(found: Arrangement) -> dict[str, list[str]]:
    return {str(id_): [str(name) for _, name in keys] for id_, keys in found.held.items()}


def said(found: Arrangement) -> list[str]:
    return [lack.sentence for lack in found.lacks]


def test_without_pins_nothing_is_held() -> None:
    assert arrange(sized(a=100), [report()]) == Arrangement({})


def test_a_pin_goes_where_the_variant_is() -> None:
    workers = [report("w1"), report("w2", replica("a")), report("w3")]
    assert held(arrange(ruled(sized(a=100), pin("a")), workers)) == {"w2": ["a"]}


def test_a_pin_stays_where_the_plan_has_it_while_it_loads() -> None:
    workers = [report("w1"), report("w2")]
    found = arrange(ruled(sized(a=100), pin("a")), workers, [placement("a", "w2")])
    assert held(found) == {"w2": ["a"]}


def test_a_pin_goes_where_nothing_has_to_leave() -> None:
    workers = [report("w1", replica("b", memory_mib=950)), report("w2")]
    assert held(arrange(ruled(sized(a=100, b=950), pin("a")), workers)) == {"w2": ["a"]}


def test_as_many_workers_hold_it_as_were_asked_for() -> None:
    workers = [report("w1"), report("w2"), report("w3")]
    found = arrange(ruled(sized(a=100), pin("a", 2)), workers)
    assert (held(found), found.lacks) == ({"w1": ["a"], "w2": ["a"]}, ())


def test_a_pin_of_a_kind_counts_for_one_of_any() -> None:
    registered = catalog(
        [variant("a")],
        [profile("a"), profile("a", kind="gpu-a")],
        kinds=[kind(), kind("gpu-a")],
    )
    workers = [report("w1"), report("w2", kind="gpu-a")]
    rules = (pin("a", id=1), pin("a", id=2, kind="gpu-a"))
    assert held(arrange(ruled(registered, *rules), workers)) == {"w2": ["a"]}


def test_pins_are_moved_where_only_that_gives_all_of_them_room() -> None:
    """The small one is on the only worker that has room for the large one."""
    workers = [report("w1", replica("small")), report("w2", memory_mib=300)]
    registered = sized(small=200, large=900)
    found = arrange(ruled(registered, pin("small", id=1), pin("large", id=2)), workers)
    assert held(found) == {"w1": ["large"], "w2": ["small"]}
    assert found.lacks == ()


def test_where_not_all_have_room_the_older_pin_is_held() -> None:
    registered = ruled(sized(a=600, b=600, c=300), pin("a", id=1), pin("b", id=2), pin("c", id=3))
    found = arrange(registered, [report("w1", replica("b", memory_mib=600))])
    assert held(found) == {"w1": ["a", "c"]}
    assert said(found) == [
        "Of pin 2, digits/b, 0 of 1 replica can be held: it needs 600 MiB, which no other worker "
        "has beside what is pinned there."
    ]
    assert found.sure


@pytest.mark.parametrize(
    ("registered", "rule", "workers", "why"),
    [
        (
            catalog([variant("a")], [profile("a")], stages={"a": Stage.RETIRED}),
            pin("a"),
            [report()],
            "its version a-v1 is retired",
        ),
        (sized(a=100), pin("a", 2), [report()], "only 1 worker that could hold it is running"),
        (sized(a=100), pin("a"), [report(draining=True)], "no worker of cpu-1 is running"),
        (sized(a=100), pin("b"), [report()], "there is no such variant"),
        (
            sized(a=100),
            pin("a"),
            [report("w1", replica("a", state=ReplicaState.QUARANTINED))],
            "it is in quarantine, or failed to load, on w1",
        ),
        (sized(a=100), pin("a", kind="gpu-a"), [report()], "it has no profile on gpu-a"),
    ],
)
def test_what_is_missing_is_said_in_a_sentence(
    registered: CatalogSnapshot, rule: Rule, workers: list[WorkerReport], why: str
) -> None:
    [lack] = arrange(ruled(registered, rule), workers).lacks
    assert lack.why == why


def test_what_is_forbidden_is_not_held() -> None:
    found = arrange(ruled(sized(a=100), pin("a", id=1), forbid("a", id=2)), [report()])
    assert (held(found), found.lacks[0].why) == ({}, "rule 2 forbids it")


def test_other_variants_may_be_left_their_memory() -> None:
    workers = [report("w1"), report("w2")]
    beside_mib = {workers[0].id: 950.0}
    found = arrange(ruled(sized(a=100), pin("a")), workers, beside_mib=beside_mib)
    assert held(found) == {"w2": ["a"]}


def test_so_many_workers_are_there_that_all_pins_have_room() -> None:
    registered = ruled(sized(a=700, b=700), pin("a", id=1), pin("b", 2, id=2))
    assert pinned_least(registered, {CPU: 5}, {CPU: 0}) == {CPU: 3}
    assert pinned_least(registered, {CPU: 2}, {CPU: 1}) == {CPU: 2}
    assert pinned_least(replace(registered, rules=()), {CPU: 5}, {CPU: 1}) == {CPU: 1}


def test_many_replicas_are_counted_quickly() -> None:
    """Adding the workers one by one would take hours."""
    registered = ruled(sized(a=100), pin("a", 3_000))
    assert pinned_least(registered, {CPU: 10_000}, {}) == {CPU: 3_000}


class _Looked(tuple[DeviceKind, ...]):
    """Device kinds that count how often somebody goes through them, as each arrangement does."""

    looks = 0

    def __iter__(self) -> Iterator[DeviceKind]:
        _Looked.looks += 1
        return super().__iter__()


def test_many_replicas_that_have_no_room_together_are_counted_quickly() -> None:
    """The workers of the second pin were added one by one, each with an arrangement of all: six
    seconds at each tick for 160 workers, and eight times as much for twice as many."""
    registered = ruled(sized(a=700, b=700), pin("a", 500, id=1), pin("b", 500, id=2))
    counted = replace(registered, device_kinds=_Looked(registered.device_kinds))
    _Looked.looks = 0

    assert pinned_least(counted, {CPU: 10_000}, {}) == {CPU: 1_000}
    assert _Looked.looks < 200


def test_the_cheapest_kind_is_taken_that_holds_a_pin() -> None:
    registered = catalog(
        [variant("a")],
        [profile("a", memory_mib=800), profile("a", kind="gpu-a", memory_mib=800)],
        kinds=[kind(memory_mib=500), kind("gpu-a", 3.6)],
    )
    assert pinned_least(ruled(registered, pin("a")), {CPU: 3, GPU: 3}, {}) == {CPU: 0, GPU: 1}


def test_a_layout_that_holds_less_of_what_is_pinned_is_not_taken() -> None:
    registered = catalog(
        [variant("a")], [profile("a", kind="gpu-a")], kinds=[kind(), kind("gpu-a")]
    )
    layouts = ({CPU: 2}, {GPU: 1})
    seen = replace(observation(ruled(registered, pin("a"))), layouts=layouts)
    assert pinning_layouts(seen).refused == (layouts[0],)


# -- properties ----------------------------------------------------------------------------------

NAMES = ("a", "b", "c")


@st.composite
def cases(draw: st.DrawFn) -> tuple[CatalogSnapshot, list[WorkerReport]]:
    sizes = {name: draw(st.sampled_from((100.0, 300.0, 500.0, 700.0))) for name in NAMES}
    registered = catalog(
        [variant(name) for name in NAMES],
        [
            profile(name, kind=on, memory_mib=size)
            for name, size in sizes.items()
            for on in sorted(draw(st.sets(st.sampled_from((CPU, GPU)), min_size=1)))
        ],
        kinds=[kind(), kind("gpu-a", 3.6)],
    )
    wanted = draw(
        st.lists(
            st.tuples(st.sampled_from(NAMES), st.sampled_from(("", CPU, GPU))),
            max_size=4,
            unique=True,
        )
    )
    rules = [
        pin(name, draw(st.integers(1, 3)), id=number, kind=on)
        for number, (name, on) in enumerate(wanted, 1)
    ]
    if draw(st.booleans()):
        rules.append(
            forbid(draw(st.sampled_from(NAMES)), id=9, kind=draw(st.sampled_from(("", CPU))))
        )
    workers = [
        report(
            f"w{number}",
            *(
                replica(name, memory_mib=sizes[name])
                for name in sorted(draw(st.sets(st.sampled_from(NAMES), max_size=1)))
            ),
            kind=draw(st.sampled_from((CPU, GPU))),
            memory_mib=draw(st.sampled_from((400.0, 800.0, 1_000.0))),
        )
        for number in range(draw(st.integers(0, 4)))
    ]
    return ruled(registered, *rules), workers


def fits(
    registered: CatalogSnapshot, workers: Sequence[WorkerReport], wanted: Mapping[int, int]
) -> bool:
    """Whether any arrangement holds so many replicas of each pin, by trying all of them."""
    sizes = {(p.device_kind, p.variant): p.memory_mib for p in registered.profiles}
    for rule in registered.rules:
        if rule.kind == "forbid":
            sizes = {
                at: mib
                for at, mib in sizes.items()
                if at[1] != rule.variant or rule.device_kind not in ("", at[0])
            }
    subsets = [
        [
            some
            for count in range(len(NAMES) + 1)
            for some in combinations(NAMES, count)
            if all((worker.device_kind, VariantName(name)) in sizes for name in some)
            and sum(sizes[worker.device_kind, VariantName(name)] for name in some)
            <= worker.memory_mib
        ]
        for worker in workers
    ]
    pins = {rule.id: rule for rule in registered.rules if rule.id in wanted}
    for chosen in product(*subsets):
        if all(
            sum(
                rule.variant in some and rule.device_kind in ("", worker.device_kind)
                for some, worker in zip(chosen, workers, strict=True)
            )
            >= wanted[id_]
            for id_, rule in pins.items()
        ):
            return True
    return False


@given(cases())
@settings(max_examples=100, deadline=None)
def test_no_pin_is_missing_that_could_be_held(
    case: tuple[CatalogSnapshot, list[WorkerReport]],
) -> None:
    registered, workers = case
    found = arrange(registered, workers)
    sizes = {(p.device_kind, (p.task, p.variant)): p.memory_mib for p in registered.profiles}
    for worker in workers:
        keys: Sequence[VariantKey] = found.held.get(worker.id, ())
        assert sum(sizes[worker.device_kind, key] for key in keys) <= worker.memory_mib
    assert found.sure
    lacking = {lack.rule.id: lack.held for lack in found.lacks}
    pins = [rule for rule in registered.rules if rule.kind == "pin"]
    wanted = {rule.id: rule.replicas for rule in pins}
    assert fits(registered, workers, wanted) == (not lacking)
    if lacking:  # the first that lacks cannot have one more beside those before it
        order = sorted(pins, key=lambda one: (_first(pins, one), not one.device_kind, one.id))
        upto: dict[int, int] = {}
        for rule in order:
            if rule.id in lacking:
                assert not fits(registered, workers, {**upto, rule.id: lacking[rule.id] + 1})
                break
            upto[rule.id] = rule.replicas


def _first(pins: Sequence[Rule], rule: Rule) -> int:
    """The oldest pin of the same variant: they are held together."""
    return min(one.id for one in pins if one.key == rule.key)


@given(cases())
@settings(max_examples=30, deadline=None)
def test_an_arrangement_that_is_carried_out_stays(
    case: tuple[CatalogSnapshot, list[WorkerReport]],
) -> None:
    registered, workers = case
    found = arrange(registered, workers)
    sizes = {(p.device_kind, (p.task, p.variant)): p.memory_mib for p in registered.profiles}
    then = [
        report(
            str(worker.id),
            *(
                replica(str(key[1]), memory_mib=sizes[worker.device_kind, key])
                for key in found.held.get(worker.id, ())
            ),
            kind=worker.device_kind,
            memory_mib=worker.memory_mib,
        )
        for worker in workers
    ]
    placed = [placement(str(key[1]), str(id_)) for id_, keys in found.held.items() for key in keys]
    assert {id_: set(keys) for id_, keys in arrange(registered, then, placed).held.items()} == {
        id_: set(keys) for id_, keys in found.held.items()
    }


@settings(max_examples=60)
@given(cases(), st.integers(0, 6), st.integers(0, 6))
def test_the_fewest_workers_hold_as_much_as_all_would(
    case: tuple[CatalogSnapshot, list[WorkerReport]], cpus: int, gpus: int
) -> None:
    registered = case[0]
    most = {CPU: cpus, GPU: gpus}

    def missing(counts: Mapping[DeviceKindName, int]) -> int:
        return sum(one.rule.replicas - one.held for one in held_by(registered, counts).lacks)

    assert missing(pinned_least(registered, most, {})) == missing(most)
