"""The catalog that gateways and the control loop decide by."""

import weakref
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.live_latency import LiveLatency
from planner.reconcile.corrections.correction import ENOUGH, profile_key
from planner.selection.select import select
from planner.selection.snapshot import build_snapshot
from planner.types import ProfileKey, Query, Refusal, RefusalCode, WorkerView
from tests.controlplane.controller.profiles.test_reprofiling import NAME, catalog
from tests.controlplane.controller.profiles.test_reprofiling import worker as reporting
from tests.variants.catalog_builders import profile
from variants.types import CatalogSnapshot, DeviceKindName, ProfileSource, ReplicaState, WorkerId
from workers.types import WorkerStatus


def worker(ratio: float, batches: int, name: str = "w-1") -> WorkerStatus:
    """It says that single rows take so many times as long as by the profile."""
    told, point = reporting(ratio, batches, name), profile().points[0]
    latency = ((1, ratio * point.p50_ms, ratio * point.p95_ms),)
    sure = point.p95_ms / point.p50_ms
    return replace(told, replicas=(replace(told.replicas[0], latency=latency, sure=sure),))


def first_ms(found: CatalogSnapshot) -> float:
    return found.profiles[0].points[0].p95_ms


def test_what_workers_report_corrects_the_profile() -> None:
    live, known = LiveLatency(), catalog()
    assert live.corrected(known) is known
    assert live.look(1.0, known, [worker(1.5, ENOUGH)])
    assert first_ms(live.corrected(known)) == pytest.approx(1.5 * first_ms(known))
    assert [key[1] for key in live.ratios] == [NAME]
    assert not live.look(2.0, known, [worker(1.5, 2 * ENOUGH)])


def test_workers_are_heard_together() -> None:
    live, known = LiveLatency(), catalog()
    live.look(1.0, known, [worker(2.0, ENOUGH), worker(0.5, ENOUGH, name="w-2")])
    assert live.ratios == {}


def test_exact_profiles_and_replicas_out_of_use_are_left_alone() -> None:
    live, exact = LiveLatency(), catalog(replace(profile(), source=ProfileSource.EXACT))
    assert not live.look(1.0, exact, [worker(9.0, ENOUGH)])
    gone = worker(9.0, ENOUGH)
    broken = replace(gone.replicas[0], state=ReplicaState.QUARANTINED)
    assert not live.look(1.0, catalog(), [replace(gone, replicas=(broken,))])


def test_a_profile_that_was_measured_again_is_believed() -> None:
    live, known = LiveLatency(), catalog()
    live.look(1.0, known, [worker(2.0, ENOUGH)])
    anew = catalog(replace(profile(), measured_at="2027-01-01T00:00:00+00:00"))
    live.look(2.0, anew, [worker(1.0, 1)])
    assert live.corrected(anew) is anew


def test_a_variant_that_nobody_holds_is_believed_as_soon_as_it_is_measured_again() -> None:
    live, known = LiveLatency(), catalog()
    live.look(1.0, known, [worker(0.5, ENOUGH)])
    anew = catalog(replace(profile(), measured_at="2027-01-01T00:00:00+00:00"))
    assert live.corrected(anew) is anew
    assert not live.look(2.0, anew, [worker(0.5, 2 * ENOUGH)])


def test_plans_allow_for_neighbours_once_and_queries_are_sent_by_what_happens() -> None:
    """Single rows take half as long again, all of it because other variants run beside them."""
    live, known = LiveLatency(), catalog()
    told = worker(1.5, 100)
    beside = replace(
        told.replicas[0], beside=1.5, beside_batches=100, beside_ms=10.0, beside_sizes=(1,)
    )
    assert live.look(1.0, known, [replace(told, replicas=(beside,))])
    assert live.interference == {told.device_kind: pytest.approx(0.5)}
    assert first_ms(live.corrected(known)) == pytest.approx(1.5 * first_ms(known))
    planned = live.alone(known)
    assert first_ms(planned) == pytest.approx(first_ms(known))
    assert live.alone(known) is planned


def test_without_neighbours_plans_are_made_by_what_happens() -> None:
    live, known = LiveLatency(), catalog()
    assert live.alone(known) is known
    live.look(1.0, known, [worker(1.5, ENOUGH)])
    assert live.alone(known) is live.corrected(known)
    assert live.interference == {}


def test_plans_count_with_what_batches_take_that_follow_on_one_another() -> None:
    """Most take twice as long as by the profile, because they come after pauses."""
    live, known = LiveLatency(), catalog()
    told, point = worker(2.0, ENOUGH), profile().points[0]
    replica = replace(told.replicas[0], busy=((1, point.p50_ms, 0.05),), busy_sure=1.25)
    assert live.look(1.0, known, [replace(told, replicas=(replica,))])
    assert first_ms(live.corrected(known)) == pytest.approx(2.0 * first_ms(known))
    [planned] = [one for one in live.alone(known).profiles if one.busy]
    [size, ms] = planned.busy[0]
    assert size == 1
    assert ms == pytest.approx(1.25 * point.p50_ms)
    assert (planned.points, planned.busy_error) == (live.corrected(known).profiles[0].points, 0.05)
    assert live.alone(known) is live.alone(known)


def test_a_profile_is_unconfirmed_until_a_batch_has_run_somewhere() -> None:
    live, known = LiveLatency(), catalog()
    key = (known.profiles[0].task, known.profiles[0].variant, known.profiles[0].device_kind)
    live.look(1.0, known, [worker(1.0, 0), worker(1.0, 0, name="w-2")])
    assert live.unconfirmed([worker(1.0, 0), worker(1.0, 0, name="w-2")]) == {key}
    assert live.unconfirmed([worker(1.0, 0), worker(1.0, 1, name="w-2")]) == frozenset()
    assert live.unconfirmed([]) == frozenset()


def test_only_reports_that_are_new_are_looked_into() -> None:
    live, known = LiveLatency(), catalog()
    told = [worker(1.5, ENOUGH, name=f"w-{number}") for number in range(20)]

    def looked_into() -> int:
        """Reports, besides the step for each worker and the one for the only profile."""
        return len(list(live.looking(1.0, known, told))) - len(told) - 1

    assert looked_into() == 20
    assert looked_into() == 0
    told[3] = worker(1.5, 2 * ENOUGH, name="w-3")
    assert looked_into() == 1
    del told[4]
    assert looked_into() == 0


reports = st.dictionaries(
    st.sampled_from(["w-1", "w-2", "w-3"]),
    st.tuples(st.sampled_from([0.5, 1.0, 2.0]), st.integers(0, 9), st.sampled_from(ReplicaState)),
)


def plain_unconfirmed(known: CatalogSnapshot, told: list[WorkerStatus]) -> set[ProfileKey]:
    """By the sum over all workers."""
    ready: dict[ProfileKey, int] = {}
    for one in told:
        for replica in one.replicas:
            if replica.state is ReplicaState.READY:
                key = (replica.task, replica.variant, DeviceKindName(one.device_kind))
                ready[key] = ready.get(key, 0) + replica.batches
    profiled = {profile_key(each) for each in known.profiles}
    return {key for key, batches in ready.items() if not batches and key in profiled}


@given(turns=st.lists(reports, max_size=6))
def test_what_is_kept_of_reports_is_what_follows_from_all_of_them(
    turns: list[dict[str, tuple[float, int, ReplicaState]]],
) -> None:
    live, forgetful, known = LiveLatency(), LiveLatency(), catalog()
    for now_s, said in enumerate(turns):
        told = []
        for name, (ratio, batches, state) in said.items():
            one = worker(ratio, batches, name=name)
            told.append(replace(one, replicas=(replace(one.replicas[0], state=state),)))
        forgetful._voices = type(forgetful._voices)()
        assert live.look(now_s, known, told) == forgetful.look(now_s, known, told)
        assert live.ratios.keys() == forgetful.ratios.keys()
        corrected = forgetful.corrected(known)
        assert first_ms(live.corrected(known)) == pytest.approx(first_ms(corrected))
        assert live.unconfirmed(told) == plain_unconfirmed(known, told)


@pytest.mark.parametrize(("took_s", "pace"), [(9.0, 0.25), (159.0, 4.0)])
def test_what_loads_take_corrects_what_queries_and_plans_count_with(
    took_s: float, pace: float
) -> None:
    live, known = LiveLatency(), catalog()
    told = replace(worker(1.0, ENOUGH), loading_s=took_s, profiled_loading_s=39.0)

    assert live.look(1.0, known, [told])
    first = live.corrected(known)
    assert first.profiles[0].load_s == pytest.approx(pace * known.profiles[0].load_s)
    assert live.alone(known).profiles[0].load_s == first.profiles[0].load_s
    assert first.profiles[0].points == known.profiles[0].points

    assert not live.look(2.0, known, [replace(told, loading_s=took_s + 0.1)])
    assert live.corrected(known) is first
    assert live.look(3.0, known, [worker(1.0, ENOUGH)])
    assert live.corrected(known) is known


def test_loads_of_all_workers_of_a_kind_count_together_and_exact_profiles_are_left_alone() -> None:
    live, known = LiveLatency(), catalog()
    slow = replace(worker(1.0, ENOUGH), loading_s=39.0, profiled_loading_s=10.0)
    quick = replace(worker(1.0, ENOUGH, name="w-2"), loading_s=1.0, profiled_loading_s=29.0)
    live.look(1.0, known, [slow, quick])
    assert live.corrected(known) is known

    exact = catalog(replace(profile(), source=ProfileSource.EXACT))
    live.look(2.0, exact, [slow])
    assert live.corrected(exact).profiles[0] is exact.profiles[0]


def test_who_is_told_cold_comes_back_by_what_loads_take_here() -> None:
    live, known = LiveLatency(), catalog()
    told = replace(worker(1.0, 0), replicas=(), loading_s=9.0, profiled_loading_s=39.0)
    live.look(1.0, known, [told])
    view = WorkerView(
        id=WorkerId(told.worker), device_kind=DeviceKindName(told.device_kind), free_mib=1e4
    )
    task, variant = known.profiles[0].task, known.profiles[0].variant
    latency_ms = 2 * profile().points[0].p95_ms
    query = Query(task, rows=1, received_ms=0.0, latency_ms=latency_ms, variant=variant)

    def refused(by: CatalogSnapshot) -> Refusal:
        found = select(build_snapshot(by, [(view, frozenset())]), query, 0.0)
        assert isinstance(found, Refusal)
        return found

    measured, now = refused(known), refused(live.corrected(known))
    assert measured.code is now.code is RefusalCode.COLD
    assert measured.retry_after_s == pytest.approx(4.0 * (now.retry_after_s or 0.0))


class _Name(str):
    """A worker's, of which it can be seen whether anybody still has it."""


def test_what_workers_said_that_are_gone_is_let_go_of() -> None:
    """Whoever only looks, as the control loop does, kept the reports of all workers there were."""
    live, known, name = LiveLatency(), catalog(), _Name("w-1")
    had = weakref.ref(name)
    live.look(1.0, known, [worker(1.0, ENOUGH, name=name)])
    del name
    assert had() is not None
    live.look(2.0, known, [worker(1.0, ENOUGH, name="w-2")])

    assert had() is None
