"""Properties of selection: what holds for whatever catalog, workers and query."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import sentences as explain
from planner.selection.load_balancing import least_busy, route
from planner.selection.select import select
from planner.types import Candidate, Choice, Query, Refusal, RefusalCode, Snapshot, WorkerView
from tests.planner.builders import (
    NOW_MS,
    catalog,
    key,
    kind,
    profile,
    query,
    snapshot,
    variant,
    worker,
)
from tests.planner.selection.strategies import EPSILON, KINDS, queries, snapshots
from variants.types import Prefer, Stage


def meets_floor_and_ceiling(candidate: Candidate, asked: Query) -> bool:
    return (asked.accuracy is None or candidate.accuracy >= asked.accuracy) and (
        asked.cost is None or candidate.price_usd_per_1k <= asked.cost
    )


def left_ms(asked: Query) -> float:
    return asked.received_ms + asked.latency_ms - NOW_MS


@given(snapshots(), queries)
def test_a_choice_that_meets_the_slo_satisfies_floor_ceiling_and_budget(
    view: Snapshot, asked: Query
) -> None:
    answer = select(view, asked, NOW_MS)
    if isinstance(answer, Choice) and answer.meets_slo:
        candidate, chosen = answer.candidate, answer.worker
        run_ms = candidate.table.ms[asked.rows] + (candidate.load_ms if answer.cold else 0.0)
        assert meets_floor_and_ceiling(candidate, asked)
        assert answer.predicted_ms <= left_ms(asked) + EPSILON
        assert answer.predicted_ms >= max(0.0, chosen.busy_until_ms - NOW_MS) + run_ms - EPSILON


@pytest.mark.parametrize("prefer", Prefer)
@pytest.mark.parametrize("ready", [True, False], ids=["ready", "to be loaded"])
def test_the_way_between_gateway_and_worker_comes_off_the_time(prefer: Prefer, ready: bool) -> None:
    """A row takes 12 ms, as a measured profile counts, and the way 8."""
    here = worker("w1", free_mib=500.0), [key("a")] if ready else []
    view = snapshot(catalog([variant("a")], [profile("a", 10.0, load_s=0.0)]), here)
    far = replace(view, transport_ms=8.0)
    for latency_ms, found in ((19.9, Refusal), (20.0, Choice)):
        answer = select(far, query(latency_ms, prefer=prefer), NOW_MS)
        assert type(answer) is found, latency_ms
        assert isinstance(answer, Refusal) or answer.predicted_ms == 20.0


@pytest.mark.parametrize("cheaper", ["a", "b"])
def test_of_two_that_are_done_at_the_same_time_the_cheaper_one_answers(cheaper: str) -> None:
    dearer = "b" if cheaper == "a" else "a"
    view = snapshot(
        catalog(
            [variant("a"), variant("b")],
            [profile(cheaper, kind="cpu-1"), profile(dearer, kind="cpu-4")],
            kinds=[kind("cpu-1", 0.36), kind("cpu-4", 1.44)],
        ),
        (worker("w1", kind="cpu-1"), [key(cheaper)]),
        (worker("w2", kind="cpu-4"), [key(dearer)]),
    )
    answer = select(view, query(100.0, prefer=Prefer.LATENCY), NOW_MS)
    assert isinstance(answer, Choice)
    assert answer.candidate.variant == cheaper


@given(snapshots(), queries)
def test_a_choice_runs_where_it_can(view: Snapshot, asked: Query) -> None:
    answer = select(view, asked, NOW_MS)
    if isinstance(answer, Choice):
        where = answer.candidate.hosts if answer.cold else answer.candidate.ready
        assert answer.worker in where
        assert not answer.worker.draining
        assert answer.worker.id != asked.avoid
        assert asked.variant in (None, answer.candidate.variant)
        assert asked.variant is not None or not answer.candidate.canary


@given(snapshots(), queries)
def test_the_same_question_has_the_same_answer(view: Snapshot, asked: Query) -> None:
    assert select(view, asked, NOW_MS) == select(view, asked, NOW_MS)


def plain_scan(view: Snapshot, asked: Query) -> tuple[str, str, str] | None:
    """The best ready candidate that fits, found by looking at all of them: each on the worker that
    is drawn for it, and if none fits there, each on its least busy worker."""
    for pick in (route, least_busy):
        fits = []
        for candidate in view.tasks[asked.task].by_cost:
            chosen = pick(candidate.ready, asked.draw, NOW_MS, asked.avoid)
            if (
                chosen is not None
                and meets_floor_and_ceiling(candidate, asked)
                and asked.rows <= candidate.table.max_batch
                and not candidate.canary
            ):
                done_ms = max(0.0, chosen.busy_until_ms - NOW_MS) + candidate.table.ms[asked.rows]
                if done_ms <= left_ms(asked):
                    fits.append((candidate, chosen, done_ms))
        if fits:
            best, chosen, _ = min(fits, key=ORDER[asked.prefer])  # of equals the first by cost
            return best.variant, best.device_kind, chosen.id
    return None


ORDER: dict[Prefer, Callable[[tuple[Candidate, WorkerView, float]], float]] = {
    Prefer.COST: lambda fit: fit[0].price_usd_per_1k,
    Prefer.ACCURACY: lambda fit: -fit[0].accuracy,
    Prefer.LATENCY: lambda fit: fit[2],
    Prefer.ENERGY: lambda fit: fit[0].footprint,
}


def assert_is_plain_scan(view: Snapshot, asked: Query) -> None:
    answer = select(view, asked, NOW_MS)
    found = None
    if isinstance(answer, Choice) and not answer.cold:
        found = answer.candidate.variant, answer.candidate.device_kind, answer.worker.id
    assert found == plain_scan(view, asked)


@given(snapshots(), queries)
@settings(max_examples=60)
def test_the_frontier_changes_nothing(view: Snapshot, asked: Query) -> None:
    if asked.task in view.tasks:
        assert_is_plain_scan(view, asked._replace(variant=None, best_effort=False))


@st.composite
def large_snapshots(draw: st.DrawFn) -> Snapshot:
    """Hundreds of variants, so that the frontier has several branches.

    Accuracy follows latency or is independent of it; the variants are on all workers, on a few, or
    on sets of their own.
    """
    rng = draw(st.randoms(use_true_random=False))
    count = draw(st.sampled_from((130, 300)))
    follows, apart, copies = draw(st.booleans()), draw(st.booleans()), draw(st.integers(1, 3))
    names = [f"v{index:03d}" for index in range(count)]
    holders = [rng.sample(range(6), copies) if apart else range(6) for _ in names]
    latencies = [rng.choice((1.0, 2.0, 5.0)) + index / 10 for index in range(count)]
    return snapshot(
        catalog(
            [
                variant(name, 0.5 + (index if follows else rng.randrange(count)) / 1_000)
                for index, name in enumerate(names)
            ],
            [
                profile(
                    name,
                    ms,
                    kind=rng.choice(KINDS),
                    max_batch=rng.choice((1, 4, 5)),
                    energy_j=rng.choice((None, ms / 100, rng.random())),
                )
                for name, ms in zip(names, latencies, strict=True)
            ],
            kinds=[kind(on, price) for on, price in zip(KINDS, (0.36, 1.44, 3.6), strict=True)],
        ),
        *(
            (
                worker(f"w{index}", kind=KINDS[index % 3], busy_ms=rng.choice((0.0, 3.0, 20.0))),
                [key(name) for name, held in zip(names, holders, strict=True) if index in held],
            )
            for index in range(6)
        ),
    )


@given(large_snapshots(), st.lists(queries, min_size=5, max_size=5))
@settings(max_examples=20, deadline=None)
def test_a_large_frontier_changes_nothing(view: Snapshot, questions: list[Query]) -> None:
    for asked in questions:
        floor = asked.accuracy and asked.accuracy - 0.3
        plain = asked._replace(variant=None, best_effort=False, accuracy=floor)
        assert_is_plain_scan(view, plain)


EMPTY = snapshot(catalog([variant("a")], [])).tasks[query().task]
NUMBER = r"([0-9.e-]+)"


def is_true(text: str, name: str, asked: Query, view: Snapshot) -> bool:
    """Whether a reason holds for some candidate of a variant, checked from its numbers."""
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    task = view.tasks[asked.task]
    own = task.by_variant.get(name, ())  # type: ignore[call-overload]
    runs = {round(c.table.ms[asked.rows], 6) for c in own if asked.rows <= c.table.max_batch}
    if found := re.fullmatch(f"accuracy {NUMBER} % < {NUMBER} %", text):
        ours, floor = (float(number) / 100 for number in found.groups())
        below = [c.accuracy for c in own if c.accuracy < (asked.accuracy or 0.0)]
        return ours < floor == pytest.approx(asked.accuracy, abs=1e-3) and any(
            ours == pytest.approx(accuracy, abs=1e-3) for accuracy in below
        )
    if found := re.fullmatch(f"a row alone costs {NUMBER} > {NUMBER} USD per million", text):
        ours, ceiling = map(float, found.groups())
        above = [c.price_usd_per_1k for c in own if c.price_usd_per_1k > (asked.cost or 0)]
        return ours > ceiling == pytest.approx(1_000 * (asked.cost or 0), rel=0.01) and any(
            ours == pytest.approx(1_000 * price, rel=0.01) for price in above
        )
    many = f"takes at most {NUMBER} rows? in one query, not {NUMBER}: ask in parts of .*"
    if found := re.fullmatch(many, text):
        most, rows = map(int, found.groups())
        return most < rows == asked.rows and any(c.table.max_batch == most for c in own)
    if found := re.fullmatch(f"p95 {NUMBER} ms > {NUMBER} ms", text):
        run, limit = map(float, found.groups())
        return run > limit == asked.latency_ms and run in runs
    if found := re.fullmatch(f"p95 {NUMBER} ms > {NUMBER} ms left", text):
        run, limit = map(float, found.groups())
        return run > limit == max(0.0, left_ms(asked)) and run in runs
    if found := re.fullmatch(f"waits {NUMBER} ms: done in {NUMBER} ms > {NUMBER} ms left", text):
        wait, done, limit = map(float, found.groups())
        waits = {w.busy_until_ms - NOW_MS for c in own for w in c.ready if w.id != asked.avoid}
        return wait in waits and done > limit == left_ms(asked) and round(done - wait, 6) in runs
    if found := re.fullmatch(r"not loaded: loading takes ([0-9.]+) s", text):
        return any(not c.ready and c.hosts for c in own)
    if found := re.fullmatch(r"there is no worker of kind (.+)", text):
        kinds = {w.device_kind for w in view.workers.values() if not w.draining}
        return found[1] not in kinds and any(c.device_kind == found[1] for c in own)
    if text.startswith("no worker holds it besides"):
        return any(all(w.id == asked.avoid for w in c.ready) for c in own)
    if text == explain.is_canary():
        return asked.variant is None and all(c.canary for c in own)
    return not own and text == task.excluded[name]  # type: ignore[index]


@given(snapshots(), queries)
@settings(max_examples=60)
def test_a_refusal_gives_a_true_reason_for_every_variant(view: Snapshot, asked: Query) -> None:
    if asked.task not in view.tasks:
        return
    answer = select(view, asked, NOW_MS)
    if not isinstance(answer, Refusal) or answer.code is RefusalCode.VARIANT_NOT_FOUND:
        return
    task = view.tasks[asked.task]
    everything = {asked.variant} if asked.variant else {*task.by_variant, *task.excluded}
    assert answer.reasons.keys() == everything
    wrong = {n: t for n, t in answer.reasons.items() if not is_true(t, n, asked, view)}
    assert wrong == {}


@given(snapshots(), queries)
@settings(max_examples=40)
def test_a_refusal_and_its_reasons_are_parts_of_a_line(view: Snapshot, asked: Query) -> None:
    answer = select(view, asked, NOW_MS)
    if isinstance(answer, Refusal):
        assert answer.message[0].islower()
        parts = [answer.message, *answer.reasons.values(), *(a.reason for a in answer.alternatives)]
        assert [text for text in parts if not text or text.endswith(".")] == []


@given(snapshots(), queries)
@settings(max_examples=40)
def test_a_refusal_for_now_means_that_another_moment_would_do(view: Snapshot, asked: Query) -> None:
    """Overloaded: an idle worker that has it loaded would answer. Too late: it would have. Who
    takes the nearest answer would get any."""
    answer = select(view, asked, NOW_MS)
    if isinstance(answer, Refusal) and answer.code in (
        RefusalCode.OVERLOADED,
        RefusalCode.DEADLINE_EXCEEDED,
    ):
        left = asked.latency_ms if answer.code is RefusalCode.DEADLINE_EXCEEDED else left_ms(asked)
        assert any(
            asked.rows <= candidate.table.max_batch
            and (
                asked.best_effort
                or (
                    meets_floor_and_ceiling(candidate, asked)
                    and candidate.table.ms[asked.rows] <= left
                )
            )
            for candidate in view.tasks[asked.task].by_cost
            if (candidate.ready or candidate.hosts) and asked.variant in (None, candidate.variant)
        )


@given(snapshots(), queries)
def test_reasons_do_not_follow_the_workers_afterwards(view: Snapshot, asked: Query) -> None:
    """A sentence is made when it is read, of what was true when the query was refused."""
    answer = select(view, asked, NOW_MS)
    if isinstance(answer, Refusal):
        then = dict(answer.reasons)
        for each in view.workers.values():
            each.busy_until_ms += 1_000.0
        assert answer.reasons == then
        assert len(answer.reasons) == len(then)


@given(snapshots(), queries)
def test_infeasible_means_that_no_idle_loaded_worker_would_do(view: Snapshot, asked: Query) -> None:
    answer = select(view, asked, NOW_MS)
    if isinstance(answer, Refusal) and answer.code is RefusalCode.SLO_INFEASIBLE:
        for candidate in view.tasks[asked.task].by_cost:
            could = bool(candidate.ready or candidate.hosts) and asked.variant in (
                None,
                candidate.variant,
            )
            if could and not (candidate.canary and asked.variant is None):
                assert (
                    not meets_floor_and_ceiling(candidate, asked)
                    or asked.rows > candidate.table.max_batch
                    or candidate.table.ms[asked.rows] > asked.latency_ms
                )


@given(snapshots(), queries)
def test_best_effort_answers_whenever_a_variant_is_ready(view: Snapshot, asked: Query) -> None:
    asked = asked._replace(best_effort=True, variant=None, avoid=None)
    if asked.task in view.tasks and any(
        c.ready and not c.canary and asked.rows <= c.table.max_batch
        for c in view.tasks[asked.task].by_cost
    ):
        assert isinstance(select(view, asked, NOW_MS), Choice)


def test_large_frontiers_are_searched_across_leaves() -> None:
    names = [f"v{index:03d}" for index in range(100)]
    view = snapshot(
        catalog(
            [variant(name, 0.5 + index / 1_000) for index, name in enumerate(names)],
            [profile(name, 1.0 + index) for index, name in enumerate(names)],
        ),
        (worker(), [key(name) for name in names]),
    )
    chosen = {}
    for prefer in Prefer:
        answer = select(view, query(97.0, accuracy=0.55, prefer=prefer), NOW_MS)
        assert isinstance(answer, Choice)
        chosen[prefer] = answer.candidate.variant
    assert chosen == {
        Prefer.COST: "v050",
        Prefer.ACCURACY: "v079",
        Prefer.LATENCY: "v050",
        Prefer.ENERGY: "v050",  # nothing was measured: as by cost
    }


FAMILY = catalog(
    [variant("small", 0.9), variant("large", 0.95), variant("same", 0.95), variant("new", 0.99)],
    [profile("small", 10), profile("large", 30), profile("same", 20), profile("new", 40)],
    stages={"new": Stage.CANARY},
)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            query(accuracy=0.97),
            "no variant of 'digits' can meet the SLO (100 ms, accuracy 97.00 %); the nearest is"
            " same: accuracy 95.00 % < 97.00 %",
        ),
        (
            query(rows=9),
            "no variant of 'digits' can meet the SLO (100 ms, 9 rows); small takes at most 8 rows"
            " in one query, not 9: ask in parts of 8",
        ),
        (
            query(accuracy=0.97, variant="small"),
            "variant 'small' of task 'digits' cannot meet the SLO (100 ms, accuracy 97.00 %):"
            " accuracy 90.00 % < 97.00 %",
        ),
    ],
)
def test_an_infeasible_query_is_told_in_one_sentence_what_is_in_its_way(
    asked: Query, message: str
) -> None:
    answer = select(snapshot(FAMILY, (worker(), [])), asked, NOW_MS)
    assert isinstance(answer, Refusal)
    assert (answer.code, answer.message) == (RefusalCode.SLO_INFEASIBLE, message)


@pytest.mark.parametrize(
    ("variants", "asked", "told"),
    [
        ([], "v", ""),
        (["b", "a"], "v", "; there are: a, b"),
        (["cnn-v1-int8", "mlp-v1-fp32", "cnn-v1-fp32"], "cnn-v1",
         "; there are: cnn-v1-fp32, cnn-v1-int8 and 1 more"),
        ([*"gfedcba"], "v", "; there are: a, b, c, d, e and 2 more"),
    ],
)  # fmt: skip
def test_instead_of_a_name_that_is_none_the_near_ones_are_told(
    variants: list[str], asked: str, told: str
) -> None:
    assert explain.there_are(variants, asked) == told


def test_of_alternatives_as_far_off_the_cheaper_comes_first() -> None:
    answer = select(snapshot(FAMILY, (worker(), [])), query(accuracy=0.97), NOW_MS)
    assert isinstance(answer, Refusal)
    assert [one.variant for one in answer.alternatives] == ["same", "large", "small"]


@pytest.mark.parametrize(
    ("stages", "told"),
    [
        (
            {"small": Stage.CANARY, "large": Stage.RETIRED},
            "small: is a canary: answers only when pinned; large: its version large-v1 is retired",
        ),
        ({"small": Stage.RETIRED, "large": Stage.RETIRED}, None),
    ],
)
def test_a_task_without_a_live_version_is_not_said_to_miss_an_slo(
    stages: dict[str, Stage], told: str | None
) -> None:
    known = catalog(
        [variant("small"), variant("large")], [profile("small"), profile("large")], stages=stages
    )
    answer = select(snapshot(known, (worker(), [key("small")])), query(), NOW_MS)
    assert isinstance(answer, Refusal)
    told = told or "; ".join(f"{name}: its version {name}-v1 is retired" for name in stages)
    assert answer.message == (
        f"no variant of 'digits' is in service for queries that name none ({told})"
    )
