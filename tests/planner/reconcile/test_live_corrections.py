"""Profiles as live latency corrects them: how far, how soon, and when it is forgotten."""

from math import exp, log

import pytest

from planner.live_model import Neighbours
from planner.reconcile.corrections.correction import ENOUGH, TOLD_S, Seen
from planner.reconcile.live_corrections import REFUSING_RELAX_S, RELAX_S, LiveCorrections
from planner.reconcile.live_profiles import BusyRatio, SizeRatio
from planner.selection.snapshot import latency_points
from tests.planner.builders import DIGITS, catalog, kind, profile, variant
from variants.types import CatalogSnapshot, DeviceKindName, TaskName, VariantName

KEY = (DIGITS, VariantName("small"), DeviceKindName("cpu-1"))
KNOWN = catalog([variant("small"), variant("large")], [profile("small", 10.0), profile("large")])


def seen(ratio: float, batches: int, mark: str = "") -> Seen:
    return Seen(KEY, mark, batches, {0: SizeRatio(log(ratio), log(ratio))})


def ratio_of(corrections: LiveCorrections) -> float:
    """Of single rows, typically."""
    return exp(corrections.ratios[KEY][0].typical)


def row_ms(found: CatalogSnapshot, name: str = "small") -> float:
    return next(p.points[0].p50_ms for p in found.profiles if p.variant == name)


def test_without_news_the_catalog_is_itself() -> None:
    corrections = LiveCorrections()
    assert not corrections.look(1.0, [])
    assert corrections.corrected(KNOWN) is KNOWN


def test_enough_batches_are_believed_and_only_for_their_profile() -> None:
    corrections = LiveCorrections()
    assert corrections.look(1.0, [seen(1.5, ENOUGH)])
    found = corrections.corrected(KNOWN)
    assert row_ms(found) == pytest.approx(1.5 * row_ms(KNOWN))
    assert [p for p in found.profiles if p.variant == "large"] == [
        p for p in KNOWN.profiles if p.variant == "large"
    ]
    assert corrections.corrected(KNOWN) is found


def test_few_batches_are_believed_in_part() -> None:
    """A quarter of the logarithm; of two, half of what is left of it."""
    corrections = LiveCorrections()
    corrections.look(1.0, [seen(2.0, ENOUGH // 4)])
    assert ratio_of(corrections) == pytest.approx(2.0**0.25)
    corrections.look(2.0, [seen(2.0, ENOUGH // 2)])
    assert ratio_of(corrections) == pytest.approx(2.0**0.625)


def test_a_new_batch_moves_what_enough_have_said_in_part() -> None:
    """Else a correction would follow each batch of a variant that is rarely asked for."""
    corrections = LiveCorrections()
    corrections.look(1.0, [seen(2.0, ENOUGH)])
    corrections.look(2.0, [seen(4.0, ENOUGH + 1)])
    assert ratio_of(corrections) == pytest.approx(2.0**1.25)


def test_workers_count_by_their_batches_up_to_a_limit() -> None:
    corrections = LiveCorrections()
    corrections.look(1.0, [seen(4.0, 200), seen(1.0, 100_000)])
    assert ratio_of(corrections) == pytest.approx(2.0)


def test_small_changes_are_not_taken_over() -> None:
    corrections = LiveCorrections()
    assert not corrections.look(1.0, [seen(1.09, ENOUGH)])
    assert corrections.look(2.0, [seen(1.12, 2 * ENOUGH)])
    assert not corrections.look(3.0, [seen(1.2, 3 * ENOUGH)])
    assert ratio_of(corrections) == pytest.approx(1.12)


def test_slowness_is_forgotten_where_nothing_runs_and_speed_is_not() -> None:
    for ratio, expected in ((2.0, 2.0 ** exp(-1.0)), (0.5, 0.5)):
        corrections = LiveCorrections()
        corrections.look(0.0, [seen(ratio, ENOUGH)])
        corrections.look(RELAX_S, [])
        assert ratio_of(corrections) == pytest.approx(expected)


def test_slowness_by_which_queries_are_refused_is_forgotten_soon() -> None:
    """Else nothing would run that could show that it is over, and the refusals would go on."""
    corrections = LiveCorrections()
    corrections.look(0.0, [seen(8.0, ENOUGH)])
    corrections.look(REFUSING_RELAX_S, [seen(8.0, ENOUGH)], {DIGITS})
    assert ratio_of(corrections) == pytest.approx(8.0 ** exp(-1.0))
    corrections.look(2 * REFUSING_RELAX_S, [seen(8.0, ENOUGH)], {TaskName("other")})
    assert ratio_of(corrections) == pytest.approx(8.0 ** exp(-1.0), rel=0.05)
    corrections.look(2 * REFUSING_RELAX_S, [seen(8.0, 2 * ENOUGH)], {DIGITS})
    assert ratio_of(corrections) == pytest.approx(8.0)


def test_a_profile_that_was_measured_again_begins_anew() -> None:
    corrections = LiveCorrections()
    corrections.look(1.0, [seen(2.0, 500, mark="monday")])
    assert corrections.look(2.0, [seen(1.0, 0, mark="tuesday")])
    assert corrections.corrected(KNOWN) is KNOWN


def test_what_workers_say_of_the_profile_before_is_not_heard_of_the_new_one() -> None:
    """They are told of the new one a little later, and begin anew then."""
    corrections = LiveCorrections()
    corrections.look(1.0, [seen(2.0, 500, mark="monday")])
    assert corrections.look(2.0, [seen(2.0, 600, mark="tuesday")])
    assert not corrections.look(3.0, [seen(2.0, 700, mark="tuesday")])
    assert not corrections.look(4.0, [])
    later_s = 2.0 + TOLD_S
    assert not corrections.look(later_s, [seen(1.0, ENOUGH, mark="tuesday")])
    assert corrections.look(later_s + 1.0, [seen(1.5, 2 * ENOUGH, mark="tuesday")])
    assert ratio_of(corrections) == pytest.approx(1.5)


def test_workers_that_begin_anew_have_been_told_and_are_heard_at_once() -> None:
    corrections = LiveCorrections()
    corrections.look(1.0, [seen(2.0, 500, mark="monday")])
    corrections.know({KEY: "tuesday"})
    assert not corrections.look(2.0, [seen(2.0, 500, mark="tuesday")])
    assert not corrections.look(3.0, [])
    assert corrections.look(4.0, [seen(0.5, ENOUGH, mark="tuesday")])
    assert ratio_of(corrections) == pytest.approx(0.5)


def test_a_profile_that_is_measured_twice_in_a_row_is_heard_of_as_late() -> None:
    corrections = LiveCorrections()
    corrections.look(1.0, [seen(2.0, 500, mark="monday")])
    corrections.know({KEY: "tuesday"})
    assert not corrections.look(2.0, [seen(2.0, 500, mark="tuesday")])
    corrections.know({KEY: "wednesday"})
    assert not corrections.look(3.0, [seen(2.0, 501, mark="wednesday")])
    assert corrections.look(4.0, [seen(0.5, ENOUGH, mark="wednesday")])


def test_what_ran_before_workers_are_heard_counts_when_they_are() -> None:
    """They may have begun anew, and run as many batches, between two looks."""
    corrections = LiveCorrections()
    corrections.look(1.0, [seen(1.0, ENOUGH, mark="monday")])
    corrections.know({KEY: "tuesday"})
    for later_s in range(2, 2 + int(TOLD_S)):
        assert not corrections.look(float(later_s), [seen(0.5, ENOUGH, mark="tuesday")])
    assert corrections.look(3.0 + TOLD_S, [seen(0.5, ENOUGH, mark="tuesday")])
    assert ratio_of(corrections) == pytest.approx(0.5)


def test_profiles_that_are_gone_or_measured_again_are_corrected_no_more() -> None:
    for marks in ({}, {KEY: "tuesday"}):
        corrections = LiveCorrections()
        corrections.look(1.0, [seen(0.5, 500, mark="monday")])
        assert not corrections.know({KEY: "monday"})
        assert corrections.know(marks)
        assert corrections.corrected(KNOWN) is KNOWN
        assert not corrections.look(2.0, [])
        assert corrections.ratios == {}


def test_a_worker_that_leaves_takes_no_evidence_back() -> None:
    corrections = LiveCorrections()
    corrections.look(1.0, [seen(2.0, 500), seen(2.0, 500)])
    corrections.look(1.0, [seen(2.0, 500)])
    assert ratio_of(corrections) == pytest.approx(2.0)


def test_a_catalog_that_was_read_anew_is_corrected_anew() -> None:
    corrections = LiveCorrections()
    corrections.look(1.0, [seen(2.0, ENOUGH)])
    corrections.corrected(KNOWN)
    other = catalog([variant("small")], [profile("small", 30.0)])
    assert row_ms(corrections.corrected(other)) == pytest.approx(2 * row_ms(other))


def test_names_of_other_tasks_are_other_profiles() -> None:
    corrections = LiveCorrections()
    other = (TaskName("other"), *KEY[1:])
    corrections.look(1.0, [seen(2.0, ENOUGH)._replace(key=other)])
    assert list(corrections.ratios) == [other]
    assert corrections.corrected(KNOWN).profiles == KNOWN.profiles


def test_a_size_that_ran_for_the_first_time_is_taken_over_at_once() -> None:
    corrections = LiveCorrections()
    corrections.look(1.0, [seen(2.0, ENOUGH)])
    larger = seen(2.0, 2 * ENOUGH)
    assert corrections.look(2.0, [larger._replace(ratios={**larger.ratios, 3: SizeRatio(0, 0)})])
    assert corrections.ratios[KEY][3] == SizeRatio(0.0, 0.0)


def test_profiles_whose_correction_did_not_change_are_the_same_objects() -> None:
    corrections = LiveCorrections()
    other = (DIGITS, VariantName("large"), KEY[2])
    corrections.look(1.0, [seen(2.0, ENOUGH), seen(3.0, ENOUGH)._replace(key=other)])
    before = corrections.corrected(KNOWN).profiles
    assert corrections.look(2.0, [seen(2.0, 2 * ENOUGH), seen(9.0, 2 * ENOUGH)._replace(key=other)])
    after = corrections.corrected(KNOWN).profiles
    assert after[0] is before[0]
    assert after[1] is not before[1]


def beside(
    ratio: float, batches: int, times: float = 1.0, compared: int = 200, sizes: tuple[int, ...] = ()
) -> Seen:
    """What a worker says whose batches run beside other variants."""
    return seen(ratio, batches)._replace(neighbours=Neighbours(times, compared, sizes, 10.0))


def alone_ratio(corrections: LiveCorrections) -> float:
    """Of single rows, in what plans are made by."""
    return row_ms(corrections.alone(KNOWN)) / row_ms(KNOWN)


@pytest.mark.parametrize("more", [0, 1], ids=["shared first", "own first"])
def test_what_neighbours_did_is_taken_off_the_workers_that_have_some(more: int) -> None:
    """One worker takes 1.8 times as long, of which 1.5 are its neighbours' doing; another runs one
    variant and takes 1.2 times. Alone it is 1.2 on either, whoever ran more batches."""
    corrections = LiveCorrections()
    voices = [beside(1.8, 500 - more, 1.5, sizes=(1,)), seen(1.2, 500 - 1 + more)]
    assert corrections.look(1.0, voices)
    assert ratio_of(corrections) == pytest.approx((1.8 * 1.2) ** 0.5)
    assert corrections.interference == {KEY[2]: pytest.approx(0.5)}
    assert alone_ratio(corrections) == pytest.approx(1.2)


def test_sizes_that_ran_alone_keep_what_they_took() -> None:
    corrections = LiveCorrections()
    corrections.look(1.0, [beside(1.5, 500, 1.5, sizes=(8,))])
    assert alone_ratio(corrections) == pytest.approx(1.5)


def test_tasks_that_are_kept_apart_take_no_longer_alone() -> None:
    """Half as long again beside each other; when nothing runs beside them any more, as profiled."""
    corrections = LiveCorrections()
    corrections.look(1.0, [beside(1.5, 500, 1.5, sizes=(1,))])
    assert alone_ratio(corrections) == pytest.approx(1.0)
    for turn in range(1, 20):
        corrections.look(1.0 + turn, [beside(1.0, 500 + 10 * turn, 1.5)])
        assert 0.9 < alone_ratio(corrections) < 1.15
    assert corrections.interference == {KEY[2]: pytest.approx(0.5)}


def test_slowness_that_is_forgotten_is_forgotten_with_its_part_of_the_neighbours() -> None:
    corrections = LiveCorrections()
    corrections.look(0.0, [beside(3.0, 500, 1.5, sizes=(1,))])
    corrections.look(RELAX_S, [])
    assert alone_ratio(corrections) == pytest.approx(2.0 ** exp(-1.0))


def test_what_only_plans_are_made_by_leaves_the_catalog_for_queries_as_it_is() -> None:
    corrections = LiveCorrections()
    corrections.look(1.0, [beside(1.5, 500, sizes=(1,))])
    found, planned = corrections.corrected(KNOWN), corrections.alone(KNOWN)
    assert planned is found
    assert corrections.look(2.0, [beside(1.5, 500, 1.5, sizes=(1,))])
    assert corrections.corrected(KNOWN) is found
    assert alone_ratio(corrections) == pytest.approx(1.0)


def test_workers_that_run_it_alone_now_are_believed_though_it_takes_as_long() -> None:
    corrections = LiveCorrections()
    corrections.look(1.0, [beside(1.5, 500, 1.5, sizes=(1,))])
    corrections.look(2.0, [beside(1.5, 500 + ENOUGH, 1.5)])
    assert alone_ratio(corrections) == pytest.approx(1.5)


def busy(times: float, batches: int, error: float = 0.05, ratio: float = 2.5) -> Seen:
    """Single rows take so many times their profile now, and ``times`` on a busy worker."""
    return seen(ratio, batches)._replace(busy={0: BusyRatio(log(times), error)})


def busy_ratio(corrections: LiveCorrections) -> float:
    """Of single rows on a busy worker, in what plans are made by."""
    return next(p.busy[0][1] for p in corrections.alone(KNOWN).profiles if p.busy) / row_ms(KNOWN)


def test_plans_are_made_by_what_busy_workers_take_and_queries_sent_by_what_is_taken_now() -> None:
    corrections = LiveCorrections()
    assert corrections.look(1.0, [busy(1.2, ENOUGH)])
    assert ratio_of(corrections) == pytest.approx(2.5)
    assert busy_ratio(corrections) == pytest.approx(1.2)
    assert [p.busy for p in corrections.corrected(KNOWN).profiles] == [(), ()]
    assert corrections.alone(KNOWN) is corrections.alone(KNOWN)


def test_what_is_as_profiled_on_a_busy_worker_is_known_as_that() -> None:
    corrections = LiveCorrections()
    assert corrections.look(1.0, [busy(1.0, ENOUGH, ratio=1.0)])
    assert corrections.corrected(KNOWN) is KNOWN
    assert busy_ratio(corrections) == pytest.approx(1.0)


def test_what_a_busy_worker_takes_is_taken_over_where_it_moves_far_enough() -> None:
    corrections = LiveCorrections()
    corrections.look(1.0, [busy(1.0, ENOUGH)])
    before = corrections.alone(KNOWN)
    assert not corrections.look(2.0, [busy(1.08, 2 * ENOUGH)])
    assert corrections.alone(KNOWN) is before
    assert corrections.look(3.0, [busy(2.0, 2 * ENOUGH + 1)])
    assert busy_ratio(corrections) == pytest.approx(2.0)
    assert ratio_of(corrections) == pytest.approx(2.5)


def test_of_two_workers_the_surer_counts_more() -> None:
    corrections = LiveCorrections()
    corrections.look(1.0, [busy(1.0, ENOUGH, error=0.02), busy(4.0, ENOUGH, error=1.0)])
    assert busy_ratio(corrections) < 1.05


def test_a_profile_that_was_measured_again_is_what_plans_are_made_by() -> None:
    corrections = LiveCorrections()
    corrections.look(1.0, [busy(1.5, 500)._replace(mark="monday")])
    assert corrections.know({KEY: "tuesday"})
    assert corrections.alone(KNOWN) is KNOWN


def test_slowness_of_busy_workers_is_forgotten_where_nothing_runs() -> None:
    corrections = LiveCorrections()
    corrections.look(0.0, [busy(2.0, ENOUGH)])
    corrections.look(RELAX_S, [])
    assert busy_ratio(corrections) == pytest.approx(2.0 ** exp(-1.0))


def busy_ms(corrections: LiveCorrections, name: str) -> float:
    """What plans count a single row with."""
    [found] = [p for p in corrections.alone(KNOWN).profiles if p.variant == name]
    return found.busy[0][1] if found.busy else latency_points(found)[0][1]


def test_what_does_not_run_is_planned_to_be_as_slow_as_what_does() -> None:
    """Else a machine that others slow would make what does not run look cheaper: of two variants
    of 10 and 11 ms the one that runs takes 30."""
    known = catalog(
        [variant("small"), variant("large")], [profile("small", 10.0), profile("large", 11.0)]
    )
    corrections = LiveCorrections()
    corrections.look(1.0, [busy(3.0, 500)])
    small, large = corrections.alone(known).profiles
    assert small.busy[0][1] == pytest.approx(30.0)
    assert large.busy[0][1] > 30.0
    assert large.busy_error > small.busy_error
    assert corrections.corrected(known).profiles[1] is known.profiles[1]
    assert corrections.alone(known) is corrections.alone(known)


def test_as_slow_as_others_is_only_what_is_on_their_kind() -> None:
    known = catalog(
        [variant("small"), variant("large")],
        [profile("small", 10.0), profile("large", kind="gpu")],
        kinds=[kind("cpu-1"), kind("gpu")],
    )
    corrections = LiveCorrections()
    corrections.look(1.0, [busy(3.0, 500)])
    assert corrections.alone(known).profiles[1] is known.profiles[1]


def test_what_others_are_quicker_by_is_not_believed_of_what_does_not_run() -> None:
    corrections = LiveCorrections()
    corrections.look(1.0, [busy(0.5, 500)])
    assert busy_ms(corrections, "large") == latency_points(KNOWN.profiles[1])[0][1]


def test_what_has_run_is_forgotten_to_be_slow_as_far_as_others_are_not() -> None:
    """It does not become cheaper than what runs on the same slow machine."""
    large = Seen((DIGITS, VariantName("large"), KEY[2]), "", 500, {})
    slow = large._replace(busy={0: BusyRatio(log(3.0), 0.05)})
    corrections = LiveCorrections()
    corrections.look(0.0, [busy(3.0, 500), slow])
    for turn in range(1, 20):
        corrections.look(turn * RELAX_S, [busy(3.0, 500 + turn), slow])
    assert busy_ms(corrections, "small") == pytest.approx(30.0)
    assert 25.0 < busy_ms(corrections, "large") < 30.0
    corrections.look(20 * RELAX_S, [busy(1.0, 1_000), slow])
    assert busy_ms(corrections, "large") < 11.0


TINY = catalog(
    [variant("small"), variant("large"), variant("huge")],
    [profile("small", 0.01), profile("large", 0.02), profile("huge", 5.0)],
)
"""Of which a pause costs the first two many times what they take."""


def lone(
    corrections: LiveCorrections, at_s: float, batches: int = 500, paid_ms: float = 0.25
) -> bool:
    """The smallest runs a row at a time, each after a pause."""
    ratio = (0.01 + paid_ms) / 0.01
    return corrections.look(at_s, [busy(1.0, batches, ratio=ratio)])


def test_what_does_not_run_is_expected_to_pay_for_pauses_what_those_pay_that_run() -> None:
    """Else each that has not run yet looks many times cheaper than the one that does."""
    corrections = LiveCorrections()
    assert lone(corrections, 1.0)
    found = corrections.corrected(TINY)
    assert row_ms(found) == pytest.approx(0.26)
    assert row_ms(found, "large") == pytest.approx(0.27)
    assert found.profiles[2] is TINY.profiles[2]  # to which it is nothing
    assert corrections.corrected(TINY) is found


def test_a_smaller_one_pays_no_more_than_pauses_usually_cost_it() -> None:
    """A large one pays 1 ms: its data are out of the caches, and a small one has few."""
    large = Seen((DIGITS, VariantName("huge"), KEY[2]), "", 500, {0: SizeRatio(log(1.2), 0.0)})
    corrections = LiveCorrections()
    corrections.look(1.0, [large._replace(busy={0: BusyRatio(0.0, 0.05)})])
    assert row_ms(corrections.corrected(TINY)) == pytest.approx(0.01 + 0.306)


def test_no_pause_is_believed_to_cost_more_than_they_usually_do() -> None:
    """A profile that is ten times too quick says nothing of others."""
    corrections = LiveCorrections()
    lone(corrections, 1.0, paid_ms=3.0)
    assert 0.3 < row_ms(corrections.corrected(TINY), "large") < 0.35


def test_plans_are_made_by_what_busy_workers_take_whatever_pauses_cost() -> None:
    corrections = LiveCorrections()
    lone(corrections, 1.0)
    _, large, huge = corrections.alone(TINY).profiles
    assert large.points[0].p50_ms == pytest.approx(0.27)
    assert large.busy == latency_points(TINY.profiles[1])
    assert huge is TINY.profiles[2]


def test_what_pauses_cost_is_gone_where_none_are_left() -> None:
    corrections = LiveCorrections()
    lone(corrections, 1.0)
    corrections.corrected(TINY)
    assert corrections.look(2.0, [busy(1.0, 1_000, ratio=1.0)])
    assert corrections.corrected(TINY).profiles[1] is TINY.profiles[1]


def test_what_pauses_cost_is_counted_anew_only_where_it_has_moved() -> None:
    corrections = LiveCorrections()
    lone(corrections, 1.0)
    before = corrections.corrected(TINY)
    assert lone(corrections, 2.0, batches=1_000, paid_ms=0.29)
    now = corrections.corrected(TINY)
    assert row_ms(now) > row_ms(before)
    assert now.profiles[1] is before.profiles[1]
    assert lone(corrections, 3.0, batches=2_000, paid_ms=0.1)
    assert row_ms(corrections.corrected(TINY), "large") == pytest.approx(0.12, abs=0.001)


def test_what_has_run_before_pays_at_least_as_much_as_what_runs_now() -> None:
    known = (DIGITS, VariantName("large"), KEY[2])
    large = Seen(known, "", 500, {0: SizeRatio(log(2.0), log(2.0))}, busy={0: BusyRatio(0.0, 0.05)})
    corrections = LiveCorrections()
    corrections.look(0.0, [large])
    for turn in range(1, 5):
        lone(corrections, 100.0 * turn, batches=500 * turn)
    assert row_ms(corrections.corrected(TINY), "large") == pytest.approx(0.27)


def test_what_has_run_a_batch_or_two_pays_as_what_has_not_run() -> None:
    """One batch is believed in part, and would make it look cheap beside those that ran many."""
    known = (DIGITS, VariantName("large"), KEY[2])
    large = Seen(known, "", 1, {0: SizeRatio(log(13.0), log(13.0))})
    corrections = LiveCorrections()
    corrections.look(1.0, [busy(1.0, 500, ratio=26.0), large])
    assert row_ms(corrections.corrected(TINY), "large") == pytest.approx(0.27)
    corrections.look(2.0, [busy(1.0, 500, ratio=26.0), large._replace(batches=500)])
    assert row_ms(corrections.corrected(TINY), "large") == pytest.approx(0.26)
