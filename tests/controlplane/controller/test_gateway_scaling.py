"""How many gateways run, by how busy their event loops are."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from controlplane import app
from controlplane.cluster.serve_applications import GATEWAY_APP
from controlplane.controller import gateway_scaling
from controlplane.controller.events.journal import Journal
from controlplane.controller.events.sightings import of_cluster
from controlplane.controller.gateway_scaling import (
    IDLE_S,
    REST_S,
    SETTLED_S,
    GatewayScaler,
    GatewayScaling,
    GatewayTarget,
    bounds,
)
from controlplane.settings import load_settings
from variants.catalog.memory import MemoryCatalog
from variants.errors import ClusterUnavailable

Reports = dict[str, dict[str, Any]]


def reports(*busy: float, asked: int = 0, refused: int = 0, code: str = "OVERLOADED") -> Reports:
    """Of gateways ``a``, ``b`` and so on; each has answered and refused as many."""
    task = {"met": asked - refused, "missed": 0, "errors": {code: refused}}
    return {
        chr(ord("a") + at): {"busy": share, "tasks": {"t": task}} for at, share in enumerate(busy)
    }


def decided(scaling: GatewayScaling, seen: Reports, begin_s: float, seconds: float) -> list[int]:
    """Numbers that were decided while the same was seen, second by second."""
    found = [scaling.look(seen, begin_s + at) for at in range(int(seconds) + 1)]
    return [target.count for target in found if target is not None]


def settled(least: int, most: int, count: int | None = None) -> GatewayScaling:
    """One that knows how many there are, at second 0, and that they were idle."""
    scaling = GatewayScaling(least, most)
    idle = reports(*[0.0] * (count or least))
    assert decided(scaling, idle, -SETTLED_S - 1, SETTLED_S) == []
    return scaling


def test_another_gateway_runs_when_those_there_are_were_busy_for_long_enough() -> None:
    scaling = settled(1, 4)

    assert decided(scaling, reports(0.9), 0.0, 3.0) == []
    target = scaling.look(reports(0.9), 4.0)

    assert target == GatewayTarget(2, "the event loops of 1 computed for 57 % of the time")


def test_one_that_is_busy_by_moments_needs_no_company() -> None:
    scaling = settled(1, 4)

    assert decided(scaling, reports(0.9), 0.0, 3.0) == []
    assert decided(scaling, reports(0.1), 4.0, 8.0) == []
    assert decided(scaling, reports(0.9), 13.0, 2.0) == []


def test_load_that_comes_in_runs_counts_as_a_whole() -> None:
    scaling = settled(1, 4)
    found = []
    for begin_s in range(0, 18, 6):
        found += decided(scaling, reports(0.85), begin_s, 3.0)
        found += decided(scaling, reports(0.0), begin_s + 4.0, 1.0)

    assert found == [2]


def test_after_a_change_nothing_is_decided_for_a_while() -> None:
    scaling = settled(1, 4)

    assert decided(scaling, reports(0.9), 0.0, 5.0) == [2]
    assert decided(scaling, reports(0.9, 0.9), 6.0, REST_S - 3) == []
    assert decided(scaling, reports(0.9, 0.9), 5.0 + REST_S, 0.0) == [4]


def test_a_few_more_at_once_are_started_by_how_much_they_have_to_do() -> None:
    """As many as would each be busy for half of the time, and never more than there may be."""
    for busy, most, count in ((0.55, 8, 5), (0.7, 8, 6), (1.0, 8, 8), (1.0, 6, 6)):
        scaling = settled(4, most)
        assert scaling.look(reports(*[busy] * 4), 1e6) == GatewayTarget(
            count, f"the event loops of 4 computed for {100 * busy:.0f} % of the time"
        )


def test_nothing_is_decided_while_some_do_not_report() -> None:
    """They start, or cannot, or the live state has lost their reports."""
    scaling = settled(1, 8, 4)

    assert decided(scaling, reports(0.45, 0.45, 0.45, 0.45), 0.0, 20.0) == []
    assert decided(scaling, reports(0.9), 21.0, 60.0) == []
    assert decided(scaling, reports(0.9, 0.9, 0.9, 0.9), 82.0, 10.0) == [8]
    assert decided(scaling, reports(0.9, 0.9, 0.9, 0.9), 93.0, 300.0) == []


def test_what_could_not_be_told_is_decided_again() -> None:
    scaling = settled(1, 4)
    assert decided(scaling, reports(0.9), 0.0, 5.0) == [2]

    scaling.not_told()

    assert decided(scaling, reports(0.9), 6.0, REST_S) == [2]


def test_gateways_that_are_gone_and_whose_reports_are_there_still_are_not_counted() -> None:
    scaling = GatewayScaling(1, 4)
    assert decided(scaling, reports(0.9, 0.9), 0.0, SETTLED_S - 2) == []

    assert decided(scaling, reports(0.9), SETTLED_S, 6.0) == [2]


def test_one_that_came_in_the_place_of_another_is_not_counted_beside_it() -> None:
    """One was killed while the control loop was new: `modelless upgrade` had three run then, left
    two, and waited for one of them to go."""
    scaling = GatewayScaling(1, 4)
    both = reports(0.0, 0.0)
    old, new = ({id_: both[id_]} for id_ in ("a", "b"))
    assert decided(scaling, old, 0.0, 9.0) == []
    assert decided(scaling, both, 10.0, 9.0) == []
    assert decided(scaling, new, 20.0, SETTLED_S) == []

    target = scaling.look(new, 40.0, replacing=True)

    assert target is not None
    assert target.count == 2


def test_there_are_never_more_than_cores_and_never_fewer_than_the_least() -> None:
    assert decided(settled(1, 2, 2), reports(0.9, 0.9), 0.0, 1_000.0) == []
    assert decided(settled(1, 2), reports(0.0), 0.0, 2 * IDLE_S) == []


def test_one_more_runs_while_others_are_replaced_and_ends_with_that() -> None:
    """However many report in between: of one that has just been replaced the report stays."""
    for least, most in ((1, 1), (1, 4)):
        scaling = settled(least, most, 1)
        told = [
            scaling.look(reports(*[0.1] * count), 100.0 + at, replacing=replacing)
            for at, (count, replacing) in enumerate(
                ((1, True), (2, True), (3, True), (3, False), (1, False), (1, False))
            )
        ]
        assert [target and target.count for target in told] == [2, None, None, 1, None, None]


def test_one_more_and_its_end_are_told_again_where_serve_did_not_hear_it() -> None:
    scaling = GatewayScaling(3, 3)
    told = []
    for at, (count, replacing) in enumerate(
        ((2, True), (2, True), (3, True), (4, False), (4, False), (3, False))
    ):  # of three one does not report at first
        target = scaling.look(reports(*[0.1] * count), 100.0 + at, replacing=replacing)
        told.append(target and target.count)
        if at in (0, 3):
            scaling.not_told()
    assert told == [4, 4, None, 3, 3, None]


def test_one_more_that_nobody_takes_back_is_taken_back() -> None:
    """The control loop that started it was killed; where the number is not free, nothing else is
    decided."""
    assert decided(GatewayScaling(1, 1), reports(0.1, 0.1), 0.0, SETTLED_S - 1) == []
    assert decided(GatewayScaling(1, 1), reports(0.1, 0.1), 0.0, SETTLED_S + 1) == [1]


@pytest.mark.parametrize(("code", "more"), [("OVERLOADED", []), ("INVALID_INPUT", [2])])
def test_gateways_that_refuse_for_full_workers_get_no_company(code: str, more: list[int]) -> None:
    scaling = settled(1, 4)
    found = []
    for at in range(10):
        seen = reports(0.9, asked=1_000 * at, refused=100 * at, code=code)
        # A look may find no new report.
        for second in (at, at + 0.5):
            found += [target.count for target in [scaling.look(seen, second)] if target]

    assert found == more


def test_a_gateway_that_counts_anew_says_nothing_of_the_workers_for_one_look() -> None:
    """A task was removed whose queries had been refused, while another one is asked on."""
    scaling = settled(1, 4)
    for at in range(10):
        scaling.look(reports(0.9, asked=1_000 * at, refused=100 * at), at)
    assert decided(scaling, reports(0.9, asked=10_000, refused=1), 10.0, 3.0) == []


def test_one_goes_when_the_others_would_have_little_to_do_for_long() -> None:
    scaling = settled(1, 4, 2)

    assert decided(scaling, reports(0.15, 0.1), 0.0, IDLE_S - 20) == []
    assert decided(scaling, reports(0.15, 0.1), IDLE_S - 19, 20) == [1]


def test_a_gateway_that_leaves_does_not_count() -> None:
    scaling = settled(1, 4)
    seen = reports(0.9, 0.0)
    seen["b"]["leaving"] = True

    assert decided(scaling, seen, 0.0, 5.0) == [2]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (1, 6)),
        ({"gateways": 3}, (3, 3)),
        ({"ray_address": "auto"}, (2, 6)),
        ({"ray_address": "auto", "gateway_nodes": "edge"}, (2, 2)),
    ],
)
def test_the_number_is_free_unless_it_is_given_or_each_has_a_node(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, object],
    expected: tuple[int, int],
) -> None:
    monkeypatch.setattr(gateway_scaling, "usable_cores", lambda: 6)

    assert bounds(load_settings(state_dir=tmp_path, **given).resolved()) == expected


@pytest.mark.parametrize(
    ("cores", "given", "expected"),
    [
        (1, {}, (1, 1)),
        (2, {}, (1, 1)),
        (2, {"gateways": 2}, (2, 2)),
        (2, {"ray_address": "auto"}, (2, 2)),
        (3, {}, (1, 3)),
        (16, {}, (1, 8)),
    ],
)
def test_two_cores_are_full_with_a_gateway_and_a_worker(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cores: int,
    given: dict[str, object],
    expected: tuple[int, int],
) -> None:
    monkeypatch.setattr(gateway_scaling, "usable_cores", lambda: cores)

    assert bounds(load_settings(state_dir=tmp_path, **given).resolved()) == expected


class Serve:
    """Takes numbers of gateways once it ``answers``, or refuses them."""

    def __init__(self) -> None:
        self.fault: Exception | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked: list[int] = []
        self.told: list[int] = []

    async def scale_gateways(self, count: int) -> None:
        self.asked.append(count)
        await self.answers.wait()
        if self.fault is not None:
            raise self.fault
        self.told.append(count)


@pytest.fixture
def serve() -> Serve:
    return Serve()


@pytest.fixture
def catalog() -> MemoryCatalog:
    return MemoryCatalog()


@pytest.fixture
def journal(catalog: MemoryCatalog) -> Journal:
    return Journal(catalog)


@pytest.fixture
def scaler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Serve, journal: Journal
) -> GatewayScaler:
    """Of one gateway, or up to three."""
    monkeypatch.setattr(gateway_scaling, "usable_cores", lambda: 3)
    return GatewayScaler(serve, journal, load_settings(state_dir=tmp_path))


async def turns(scaler: GatewayScaler, begin_s: int, end_s: int) -> None:
    """A turn a second, in which one gateway is busy."""
    for second in range(begin_s, end_s):
        scaler.follow(reports(0.8), float(second))
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "fault",
    [ClusterUnavailable("gateways cannot be scaled: it is away"), RuntimeError("what is this?")],
)
async def test_what_is_decided_is_told_and_journaled_and_tried_again(
    serve: Serve, scaler: GatewayScaler, journal: Journal, catalog: MemoryCatalog, fault: Exception
) -> None:
    serve.fault = fault
    await turns(scaler, 0, 20)
    assert journal.troubled("scaling of gateways")

    serve.fault = None
    await turns(scaler, 20, 20 + int(REST_S))
    await journal.store_events()

    assert serve.told == [2]
    assert not journal.troubled("scaling of gateways")
    [event] = catalog.events(10)
    assert (event.kind, event.subject) == ("gateways_scaled", "gateways")
    assert event.message == "2 are to run: the event loops of 1 computed for 79 % of the time"


async def test_one_gateway_is_told_of_in_the_singular(
    scaler: GatewayScaler, journal: Journal, catalog: MemoryCatalog
) -> None:
    await scaler._tell(GatewayTarget(count=1, why="the others have been replaced"))
    await journal.store_events()
    [event] = catalog.events(10)
    assert event.message == "1 is to run: the others have been replaced"


async def test_gateways_of_another_cluster_of_the_installation_do_not_count(
    tmp_path: Path, serve: Serve, journal: Journal
) -> None:
    """While one takes the place of the other, Ray Serve was told to end what it had not started."""
    scaler = GatewayScaler(serve, journal, load_settings(state_dir=tmp_path, gateways=1), "new")
    seen = {id_: {**one, "cluster": "old"} for id_, one in reports(0.8, 0.8).items()}
    seen["c"] = {"busy": 0.1, "cluster": "new"}
    for second in range(60):
        scaler.follow(seen, float(second))
        await asyncio.sleep(0)
    assert serve.asked == []
    assert of_cluster(seen, "").keys() == {"a", "b", "c"}
    assert of_cluster({"a": {}}, "new").keys() == {"a"}


async def test_no_turn_waits_for_ray_serve_which_is_told_one_number_at_a_time(
    serve: Serve, scaler: GatewayScaler
) -> None:
    serve.answers.clear()
    await asyncio.wait_for(turns(scaler, 0, 200), 30.0)
    assert (serve.asked, serve.told) == ([2], [])
    serve.answers.set()
    await turns(scaler, 200, 201)
    assert serve.told == [2]
    await scaler.close()


async def test_what_is_being_told_is_given_up_when_it_closes(
    serve: Serve, scaler: GatewayScaler
) -> None:
    serve.answers.clear()
    await turns(scaler, 0, 20)
    await asyncio.wait_for(scaler.close(), 30.0)
    assert serve.told == []


def test_what_is_scaled_is_what_is_deployed() -> None:
    assert app.gateway({})._bound_deployment.name == "gateway"
    assert GATEWAY_APP == "modelless-gateway"
