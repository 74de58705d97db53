"""A query among workers of two zones: the own one first, others where the SLO asks for it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest

from planner.canary.some_versions import without_versions
from planner.selection.routes import resolve
from planner.selection.snapshot import build_snapshot
from planner.types import (
    TRANSPORT_MS,
    Choice,
    FormingBatch,
    PlacedReason,
    Query,
    QueueNews,
    Reason,
    Refusal,
    RefusalCode,
    Snapshot,
    WorkerView,
)
from planner.zones.rings import Rings
from tests.planner.builders import DIGITS, NOW_MS, catalog, key, kind, profile, query, variant
from variants.types import Prefer, Route, VariantName, WorkerId

AWAY_MS = 40.0


@dataclass
class Place:
    """A gateway of the zone ``edge``, and workers in two zones that hold what they are named for.

    ``fast`` takes 10 ms and has an accuracy of 0.8, ``good`` takes 30 and has 0.9.
    """

    busy_ms: dict[str, float] = field(default_factory=dict)
    edge: Sequence[str] = ("fast", "good")
    core: Sequence[str] = ("fast", "good")
    zone: str = "edge"
    away_ms: float = AWAY_MS
    routes: Sequence[Route] = ()
    core_usd: float = 0.36

    def __post_init__(self) -> None:
        self.known = catalog(
            [variant("fast", 0.8), variant("good", 0.9)],
            [
                profile(name, took_ms, kind=of)
                for name, took_ms in (("fast", 10.0), ("good", 30.0))
                for of in ("small", "large")
            ],
            kinds=[kind("small"), kind("large", usd_per_hour=self.core_usd)],
        )
        workers = (
            (self._worker("e1", "edge", 0.0, "small"), self.edge),
            (self._worker("c1", "core", self.away_ms, "large"), self.core),
        )
        self.held = {view.id: (view, [key(name) for name in ready]) for view, ready in workers}
        self.rings = Rings(self.zone)
        self.rings.follow(view for view, _ in self.held.values())
        self.rings.fill(self._snapshot)
        self.rings.route(lambda of, before: resolve(self.routes, of, Prefer.COST, before))

    def _worker(self, name: str, zone: str, away_ms: float, of: str) -> WorkerView:
        return WorkerView(
            id=WorkerId(name),
            device_kind=kind(of).name,
            zone=zone,
            round_trip_ms=away_ms,
            busy_until_ms=NOW_MS + self.busy_ms.get(name, 0.0),
            free_mib=1_000.0,
        )

    def _snapshot(self, ids: Iterable[WorkerId], transport_ms: float, before: Snapshot) -> Snapshot:
        held = [self.held[id_] for id_ in ids]
        return build_snapshot(self.known, held, transport_ms=transport_ms, before=before)

    def choose(self, asked: Query) -> Choice | Refusal:
        return self.rings.choose(asked, NOW_MS)

    def found(self, **asked: object) -> tuple[str, str]:
        choice = self.choose(query(**asked))  # type: ignore[arg-type]
        assert isinstance(choice, Choice), choice
        return choice.worker.id, choice.candidate.variant


def test_a_query_is_answered_at_home_while_that_is_in_time() -> None:
    assert Place().found(latency_ms=100.0) == ("e1", "fast")
    assert Place({"e1": 80.0}).found(latency_ms=100.0) == ("e1", "fast")
    # Cheaper workers elsewhere are no reason to leave.
    assert Place(core_usd=0.01).found(latency_ms=100.0) == ("e1", "fast")


def test_it_goes_elsewhere_when_home_is_full_and_the_round_trip_leaves_the_time() -> None:
    full = Place({"e1": 95.0})
    assert full.found(latency_ms=100.0) == ("c1", "fast")
    choice = full.choose(query(latency_ms=100.0))
    assert isinstance(choice, Choice)
    assert choice.predicted_ms == pytest.approx(12.0 + AWAY_MS + TRANSPORT_MS)


def test_it_does_not_go_where_the_round_trip_makes_it_late() -> None:
    refusal = Place({"e1": 95.0}).choose(query(latency_ms=45.0))
    assert isinstance(refusal, Refusal)
    assert refusal.code is RefusalCode.OVERLOADED
    assert "in zone core, 40 ms away" in refusal.message
    assert refusal.reasons["fast"].startswith("waits 95 ms")


def test_a_refusal_says_how_far_away_a_worker_is() -> None:
    refusal = Place(edge=(), zone="elsewhere").choose(query(latency_ms=45.0))
    assert isinstance(refusal, Refusal)
    assert refusal.code is RefusalCode.COLD  # the edge may load it
    far = Place(edge=(), away_ms=80.0)
    del far.held[WorkerId("e1")]
    far.rings.follow(view for view, _ in far.held.values())
    far.rings.fill(far._snapshot)
    refusal = far.choose(query(latency_ms=45.0))
    assert isinstance(refusal, Refusal)
    assert refusal.code is RefusalCode.SLO_INFEASIBLE
    assert refusal.reasons["fast"].endswith("(in zone core, 80 ms away)")


def test_accuracy_is_a_reason_to_go_elsewhere_but_not_the_same_accuracy() -> None:
    assert Place().found(latency_ms=200.0, prefer=Prefer.ACCURACY) == ("e1", "good")
    without = Place(edge=("fast",))
    assert without.found(latency_ms=200.0, prefer=Prefer.ACCURACY) == ("c1", "good")
    assert without.found(latency_ms=200.0, accuracy=0.85) == ("c1", "good")
    # There is no time for the way.
    assert without.found(latency_ms=60.0, prefer=Prefer.ACCURACY) == ("e1", "fast")


def test_who_prefers_latency_has_the_round_trip_counted() -> None:
    assert Place({"e1": 30.0}).found(latency_ms=200.0, prefer=Prefer.LATENCY) == ("e1", "fast")
    assert Place({"e1": 50.0}).found(latency_ms=200.0, prefer=Prefer.LATENCY) == ("c1", "fast")


def test_what_is_ready_elsewhere_comes_before_a_load_at_home() -> None:
    assert Place(edge=()).found(latency_ms=5_000.0) == ("c1", "fast")
    nowhere = Place(edge=(), core=()).choose(query(latency_ms=5_000.0))
    assert isinstance(nowhere, Choice)
    assert (nowhere.worker.id, nowhere.cold) == ("e1", True)


def test_versions_that_do_not_hold_it_are_left_out_in_every_zone() -> None:
    place = Place({"e1": 95.0})
    asked = query(latency_ms=100.0)

    def without_fast(snapshot: Snapshot) -> Snapshot:
        return without_versions(snapshot, DIGITS, {"fast-v1": "is too short"})

    choice = place.rings.choose(asked, NOW_MS, without_fast)
    assert isinstance(choice, Choice)
    assert (choice.worker.id, choice.candidate.variant) == ("c1", "good")
    refused = place.rings.choose(asked._replace(accuracy=0.99), NOW_MS, without_fast)
    assert isinstance(refused, Refusal)
    assert refused.reasons["fast"] == "is too short"
    assert refused.reasons["good"].startswith("accuracy")


def test_one_that_home_has_refused_goes_elsewhere() -> None:
    assert Place().found(latency_ms=100.0, avoid="e1") == ("c1", "fast")


def test_one_that_was_refused_goes_where_it_is_done_first() -> None:
    busy = Place({"e1": 80.0})
    assert busy.found(latency_ms=100.0) == ("e1", "fast")
    assert busy.found(latency_ms=100.0, avoid="e2") == ("c1", "fast")
    assert Place().found(latency_ms=100.0, avoid="e2") == ("e1", "fast")


def test_home_is_followed_by_its_part_of_the_plan() -> None:
    def route(worker: str, qps: float) -> Route:
        return Route(
            task=DIGITS, latency_ms=100.0, accuracy=None, variant=VariantName("fast"),
            worker=WorkerId(worker), batch_size=1, qps=qps,
        )  # fmt: skip

    place = Place(routes=[route("e1", 1.0), route("c1", 99.0)])
    found = [place.choose(query(latency_ms=100.0, draw=draw << 20)) for draw in range(50)]
    assert {one.worker.id for one in found if isinstance(one, Choice)} == {"e1"}
    assert {one.reason for one in found if isinstance(one, Choice)} == {Reason.PLANNED}


def test_without_a_zone_of_its_own_a_gateway_takes_what_costs_least_and_is_near() -> None:
    assert Place(zone="").found(latency_ms=200.0) == ("e1", "fast")
    assert Place(zone="", core_usd=0.01).found(latency_ms=200.0) == ("c1", "fast")


def test_workers_that_are_equally_far_away_make_no_rings() -> None:
    near = Place(zone="", away_ms=0.0)
    assert not near.rings
    assert Place().rings
    assert (near.rings.only, Place().rings.only) == (None, None)
    far = Place()
    far.rings.follow([far.held[WorkerId("c1")][0]])
    assert not far.rings
    assert far.rings.only == ("in zone core, 40 ms away", "zone edge has no workers")


def test_a_refusal_narrows_the_window_of_the_zone_that_refused() -> None:
    place = Place()
    edge, core = (ring.congestion for ring in place.rings._rings.values())
    for number in range(5):
        place.rings.congestion.refused(NOW_MS + number, WorkerId("e1"))
    assert edge.at(NOW_MS + 5) < 0.7
    assert core.at(NOW_MS + 5) == 1.0
    place.rings.congestion.refused(NOW_MS + 5, WorkerId("c1"), twice=query(latency_ms=100.0))
    assert core.at(NOW_MS + 5) == pytest.approx(0.9)
    # Who was refused by both is made up for wherever the window is narrow.
    for window in (edge, core):
        assert [window.shedding.sheds(usd, 100, NOW_MS + 5) for usd in (1.0, 3.0)] == [False, True]
    before = edge.at(NOW_MS + 6)
    place.rings.congestion.refused(NOW_MS + 6, WorkerId("gone"))
    assert edge.at(NOW_MS + 6) == before


def test_who_had_no_time_is_known_in_its_zone() -> None:
    place = Place()
    edge, core = (ring.congestion for ring in place.rings._rings.values())
    one = query(latency_ms=100.0)
    place.rings.congestion.had_no_time(WorkerId("e1"), one, NOW_MS)
    place.rings.congestion.had_no_time(WorkerId("gone"), one, NOW_MS)

    assert edge.is_full(WorkerId("e1"), one, NOW_MS)
    assert not core.is_full(WorkerId("e1"), one, NOW_MS)


def test_what_a_worker_tells_of_its_queue_is_known_in_its_zone() -> None:
    place = Place()
    edge, core = (ring.congestion.batches for ring in place.rings._rings.values())
    view = place.held[WorkerId("c1")][0]
    news = QueueNews(30.0, [FormingBatch(DIGITS, VariantName("fast"), 2, 8, 10.0)])
    nothing = Snapshot(revision=0, tasks={}, workers={})
    place.rings.congestion.batches.told(view, news, nothing, NOW_MS)
    assert view.busy_until_ms == NOW_MS + 30.0
    assert [(b.worker.id, b.rows) for b in core.of(DIGITS, NOW_MS)] == [("c1", 2)]
    assert not edge.of(DIGITS, NOW_MS)
    gone = WorkerView(id=WorkerId("gone"), device_kind=view.device_kind)
    place.rings.congestion.batches.told(gone, news, nothing, NOW_MS)
    assert gone.busy_until_ms == NOW_MS + 30.0


def test_a_worker_sees_no_way_in_what_it_is_asked() -> None:
    place = Place({"c1": 20.0}, edge=())
    asked = query(latency_ms=200.0)
    choice = place.choose(asked)
    assert isinstance(choice, Choice)
    there, found = place.rings.as_there(asked, choice)
    assert there.latency_ms == 200.0 - AWAY_MS
    assert found.predicted_ms == pytest.approx(20.0 + 12.0 + TRANSPORT_MS)


@pytest.mark.parametrize(
    ("place", "asked", "why"),
    [
        (Place(), {}, "in zone edge: it was asked for there"),
        (Place({"e1": 95.0}), {}, "in zone core, 40 ms away: zone edge has no room for it in time"),
        (
            Place(edge=("fast",)), {"accuracy": 0.85},
            "in zone core, 40 ms away: what could meet the SLO is not loaded in zone edge",
        ),
        (
            Place(edge=("fast",)), {"prefer": Prefer.ACCURACY},
            "in zone core, 40 ms away: it is more accurate than what zone edge has time for",
        ),
        (
            Place({"e1": 60.0}), {"prefer": Prefer.LATENCY},
            "in zone core, 40 ms away: it is done sooner than in zone edge, the way counted",
        ),
        (
            Place(), {"avoid": "e1"},
            "in zone core, 40 ms away: the worker that was asked first refused it or was lost, and "
            "here it is done first",
        ),
        (
            Place(zone="south"), {},
            "in zone edge: zone south has no workers",
        ),
    ],
)  # fmt: skip
def test_an_answer_says_where_it_is_from_and_why(
    place: Place, asked: dict[str, object], why: str
) -> None:
    choice = place.choose(query(latency_ms=100.0, **asked))  # type: ignore[arg-type]
    assert isinstance(choice, Choice)
    assert isinstance(choice.reason, PlacedReason)
    assert f"{choice.reason.place}: {choice.reason.why}" == why
    assert Reason(choice.reason) in Reason
