"""A snapshot made from an earlier one is the snapshot made from nothing."""

from dataclasses import asdict, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.selection.snapshot import Unloadable, build_snapshot, changed_tasks
from planner.types import Candidate, Snapshot, WorkerView
from tests.planner.builders import catalog, key, kind, profile, task, variant, worker
from variants.catalog.known_objects import keeping
from variants.types import CatalogSnapshot, Stage, TaskName, VariantKey, WorkerId

TASKS = ("red", "blue")
NAMES = ("a", "b", "c")
KINDS = ("cpu-1", "gpu-a")
Workers = list[tuple[WorkerView, frozenset[VariantKey]]]

keys = st.frozensets(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(TASKS)).map(lambda pair: key(*pair))
)


@st.composite
def catalogs(draw: st.DrawFn) -> CatalogSnapshot:
    """A few variants of two tasks; what one draws, another draw often has too."""
    variants, profiles, stages = [], [], {}
    for of in TASKS:
        for name in NAMES:
            if draw(st.integers(0, 3)):
                variants.append(variant(name, draw(st.sampled_from((0.8, 0.9))), task=of))
                stages[name] = draw(st.sampled_from((Stage.LIVE, Stage.LIVE, Stage.RETIRED)))
            profiles += [
                profile(name, draw(st.sampled_from((5.0, 10.0))), task=of, kind=on)
                for on in KINDS
                if draw(st.integers(0, 2))
            ]
    memory_mib = draw(st.sampled_from((1_000.0, 1_000.0, 50.0)))
    return catalog(
        variants,
        profiles,
        kinds=[kind(on, memory_mib=memory_mib) for on in KINDS],
        stages=stages,
        tasks=[task(of) for of in TASKS],
    )


@st.composite
def fleets(draw: st.DrawFn) -> list[tuple[int, bool, frozenset[VariantKey]]]:
    """Workers by number, whether they drain, and what they hold."""
    numbers = draw(st.lists(st.integers(0, 3), unique=True))
    return [(n, not draw(st.integers(0, 5)), draw(keys)) for n in numbers]


failures = st.dictionaries(
    st.sampled_from([WorkerId(f"w{n}") for n in range(4)]),
    st.dictionaries(
        st.tuples(st.sampled_from(NAMES), st.sampled_from(TASKS)).map(lambda pair: key(*pair)),
        st.sampled_from(("its artifact is damaged", "no memory")),
    ),
)
"""What workers cannot load; mostly nothing changes there."""

VIEWS = [worker(f"w{n}", kind=KINDS[n % 2]) for n in range(4)]


def attached(fleet: list[tuple[int, bool, frozenset[VariantKey]]]) -> Workers:
    """The same views from one moment to the next, as a gateway has them."""
    for number, draining, _ in fleet:
        VIEWS[number].draining = draining
    return [(VIEWS[number], ready) for number, _, ready in fleet]


def candidates(snapshot: Snapshot) -> list[Candidate]:
    return [c for view in snapshot.tasks.values() for c in view.by_cost]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.none() | catalogs(), fleets(), st.none() | failures), min_size=2, max_size=6
    )
)
def test_what_is_reused_is_what_would_be_made(
    moments: list[
        tuple[
            CatalogSnapshot | None, list[tuple[int, bool, frozenset[VariantKey]]], Unloadable | None
        ]
    ],
) -> None:
    """Through any changes of the catalog (None: the same one), of the workers, and of what they
    cannot load (None: the same)."""
    known = moments[0][0] or catalog([], [])
    before: Snapshot | None = None
    unloadable: Unloadable = {}
    for changed, fleet, failed in moments:
        known = changed or known
        unloadable = unloadable if failed is None else failed
        workers = attached(fleet)
        reused = build_snapshot(known, workers, unloadable=unloadable, before=before)
        anew = build_snapshot(known, workers, unloadable=unloadable)
        assert shown(reused) == shown(anew)
        assert (reused.workers, reused.kinds) == (anew.workers, anew.kinds)
        assert_equal_sets_are_one_tuple(candidates(reused))
        told = changed_tasks(before, reused)
        if before is not None and told is not None:
            others = {name for name, view in reused.tasks.items() if before.tasks[name] is not view}
            assert others <= set(told)
        before = reused


def test_what_changed_is_told_of_a_snapshot_and_the_one_it_was_made_from() -> None:
    known = catalog(
        [variant("a", task=of) for of in TASKS], [profile("a", 5.0, task=of) for of in TASKS]
    )
    view = worker("w0", kind="cpu-1")
    first = build_snapshot(known, [(view, frozenset())])
    second = build_snapshot(known, [(view, frozenset({key("a", "red")}))], before=first)
    third = build_snapshot(known, [(view, frozenset())], before=second)

    assert list(changed_tasks(first, second) or ()) == ["red"]
    assert changed_tasks(first, third) is None
    assert changed_tasks(second, build_snapshot(replace(known), [], before=second)) is None
    assert changed_tasks(None, first) is None


def shown(snapshot: Snapshot) -> dict[str, object]:
    """All that a snapshot says, as values that compare."""
    return {
        name: (
            view.task,
            view.excluded,
            view.accuracies,
            [
                [value(c) for c in order]
                for order in (view.by_cost, view.by_accuracy, view.by_latency, view.by_energy)
            ],
            {variant: [value(c) for c in own] for variant, own in view.by_variant.items()},
            [
                [(*leaf[:3], [value(c) for c in leaf.candidates])]
                for frontier in (view.cost_frontier, view.accuracy_frontier, view.latency_frontier)
                for branch in frontier
                for leaf in branch.leaves
            ],
        )
        for name, view in snapshot.tasks.items()
    }


def value(candidate: Candidate) -> tuple[object, ...]:
    fields = asdict(replace(candidate, ready=(), hosts=()))
    fields["table"] = candidate.table.ms
    return tuple(fields.values()), ids(candidate.ready), ids(candidate.hosts)


def ids(workers: tuple[WorkerView, ...]) -> tuple[str, ...]:
    return tuple(view.id for view in workers)


def assert_equal_sets_are_one_tuple(found: list[Candidate]) -> None:
    for sets in ([c.ready for c in found], [c.hosts for c in found if not c.unloadable]):
        by_ids = {ids(workers): workers for workers in sets}
        assert all(by_ids[ids(workers)] is workers for workers in sets)


LARGE = catalog(
    [variant(name, task=of) for of in TASKS for name in NAMES],
    [profile(name, task=of) for of in TASKS for name in NAMES],
)


def test_what_one_worker_holds_touches_one_task() -> None:
    one, other = worker("w1"), worker("w2")
    held = frozenset({key("a", "red")})
    first = build_snapshot(LARGE, [(one, held), (other, held)])
    second = build_snapshot(LARGE, [(one, held | {key("b", "red")}), (other, held)], before=first)
    assert [second.tasks[of] is first.tasks[of] for of in sorted(second.tasks)] == [True, False]
    red = second.tasks[TaskName("red")].by_cost
    kept = {c.variant: any(c is old for old in candidates(first)) for c in red}
    assert kept == {"a": True, "b": False, "c": True}


def test_a_changed_variant_touches_its_task_and_keeps_its_latencies() -> None:
    first = build_snapshot(LARGE, [(worker(), frozenset())])
    variants = list(LARGE.variants)
    variants[0] = replace(variants[0], accuracy=0.99)
    changed = replace(LARGE, revision=2, variants=tuple(variants))
    second = build_snapshot(changed, [(worker(), frozenset())], before=first)
    assert second.revision == 2
    tables = {id(c.table) for c in candidates(first)}
    assert all(id(c.table) in tables for c in candidates(second))


def test_a_catalog_that_was_read_again_keeps_what_is_equal() -> None:
    again = catalog(
        [variant(name, 0.99 if (name, of) == ("a", "red") else 0.9, of) for of in TASKS
         for name in NAMES],
        [profile(name, task=of) for of in TASKS for name in NAMES],
    )  # fmt: skip
    kept = keeping(again, LARGE)
    assert kept == again
    changed = [
        new for new, old in zip(kept.variants, LARGE.variants, strict=True) if new is not old
    ]
    assert [v.key for v in changed] == [key("a", "red")]
    assert all(new is old for new, old in zip(kept.profiles, LARGE.profiles, strict=True))
