"""Measurements that are lost, refused or cannot be kept, and how long they rest."""

from pathlib import Path

import pytest

from controlplane.backoff import LONGEST_S
from controlplane.controller.profiles.measuring import LOOK_EVERY_S
from controlplane.profiling.due.orders import MeasuringOrder
from controlplane.profiling.due.setbacks import REFUSED_S, REST_S
from tests.controlplane.controller.profiles.nodes_to_measure import (
    NODE,
    Answer,
    Cluster,
    House,
    measured_there,
    status,
)
from tests.variants.catalog_builders import CPU
from variants.catalog.memory import MemoryCatalog
from variants.errors import (
    ArtifactDamaged,
    InvalidArtifact,
    InvalidInput,
    ModellessError,
    ReplicaLost,
    StateUnavailable,
    TrialKilled,
    VariantNotLoadable,
)
from variants.types import DeviceKind, Profile


class LosingWrites(MemoryCatalog):
    """A catalog that is away for the next writes of profiles."""

    lost = 0

    def put_profiles(
        self, profiles: tuple[Profile, ...], device_kinds: tuple[DeviceKind, ...] = ()
    ) -> None:
        if self.lost:
            self.lost -= 1
            raise StateUnavailable("the database does not answer")
        super().put_profiles(profiles, device_kinds)


def refusing(error: ModellessError) -> Answer:
    async def answer(_: MeasuringOrder) -> Profile:
        raise error

    return answer


async def test_what_is_lost_is_told_once_and_tried_again(tmp_path: Path) -> None:
    lost = refusing(ReplicaLost("measuring one: the node was lost"))
    house = House(Cluster({"cpu-1-a": "n-1"}, lost), tmp_path, "one")

    assert len(await house.look()) == 1
    assert len(await house.look()) == 1
    [event] = await house.events()
    assert event.kind == "measuring_failed"
    assert event.message == "on cpu-1: REPLICA_LOST: measuring one: the node was lost"
    house.cluster.answer = measured_there
    house.cluster.placed = {"cpu-1-c": "n-2"}
    house.workers = {"cpu-1-c": status(0.0)}

    assert await house.look() == [("one-v1-onnx-fp32", "n-2")]
    assert len(house.catalog.snapshot().profiles) == 1


@pytest.mark.parametrize(
    "error",
    [
        TrialKilled("one: its trial process was killed; whether memory ran out is not known"),
        ReplicaLost("measuring one: the node or the process there was lost"),
    ],
)
@pytest.mark.parametrize("own_slice", [False, True])
async def test_what_ends_with_its_node_says_nothing_of_the_variant(
    tmp_path: Path, error: ModellessError, own_slice: bool
) -> None:
    cluster = Cluster({} if own_slice else {"cpu-1-a": "n-1"}, refusing(error), own_node="n-1")
    cluster.going = {"n-1"}
    slices = "cpu-1" if own_slice else ""
    house = House(cluster, tmp_path, "one", "two", slices=slices)

    assert len(await house.look()) == 1
    [event] = await house.events()
    gone = "measuring one-v1-onnx-fp32 on cpu-1: its node went meanwhile"
    assert (event.kind, event.message) == ("measuring_failed", f"on cpu-1: REPLICA_LOST: {gone}")
    cluster.answer = measured_there
    cluster.own_node = "n-2"
    if not own_slice:
        cluster.placed = {"cpu-1-c": "n-2"}
        house.workers = {"cpu-1-c": status(0.0)}
    # At once, and before what has not been tried yet.
    [(variant, _)] = await house.look()
    assert variant == "one-v1-onnx-fp32"


@pytest.mark.parametrize("own_slice", [False, True])
async def test_what_is_lost_waits_longer_and_longer_where_nobody_can_say_whether_its_node_stays(
    tmp_path: Path, own_slice: bool
) -> None:
    lost = refusing(ReplicaLost("measuring one: the node or the process there was lost"))
    cluster = Cluster({} if own_slice else {"cpu-1-a": "n-1"}, lost, own_node="n-1")
    house = House(cluster, tmp_path, "one", slices="cpu-1" if own_slice else "")
    await house.look()
    cluster.unknown = {"n-1"}
    tries = [len(await house.look()) for _ in range(24)]  # two minutes
    assert 3 <= sum(tries) <= 6
    assert tries[-8:].count(1) <= 1


async def test_a_node_that_cannot_be_looked_at_holds_up_no_other_and_waits(tmp_path: Path) -> None:
    cluster = Cluster({"cpu-1-a": "n-1", "cpu-1-b": "n-2"}, unknown={"n-1"})
    house = House(cluster, tmp_path, "one")
    assert await house.look() == [("one-v1-onnx-fp32", "n-2")]
    for _ in range(10):
        await house.look()
    assert cluster.looks < 9  # eleven at the one, and one at the other


async def test_what_is_killed_on_a_node_that_stays_is_left_alone(tmp_path: Path) -> None:
    killed = refusing(TrialKilled("one: its trial process was killed"))
    house = House(Cluster({"cpu-1-a": "n-1"}, killed), tmp_path, "one")

    assert len(await house.look()) == 1
    assert await house.look(REFUSED_S / 2) == []


async def test_what_is_refused_is_left_alone_until_it_is_asked_for(tmp_path: Path) -> None:
    refused = refusing(InvalidArtifact("one-v1-onnx-fp32: it crashed its trial process (SIGSEGV)"))
    house = House(Cluster({"cpu-1-a": "n-1"}, refused), tmp_path, "one")

    assert len(await house.look()) == 1
    (key,) = house.measuring.refusals
    assert key[1:] == ("one-v1-onnx-fp32", CPU)
    assert house.measuring.refusals[key] == "it crashed its trial process (SIGSEGV)"
    assert await house.look(REFUSED_S / 2) == []
    for at in ("noon", "one o'clock"):
        house.request(f"was asked for at {at}", at)
        assert len(await house.look()) == 1
        assert await house.look(REFUSED_S / 2) == []
        assert len(house.measuring.refusals) == 1
    house.cluster.answer = measured_there
    house.request("was asked for at two o'clock", "two o'clock")
    assert len(await house.look()) == 1
    assert house.measuring.refusals == {}


async def test_what_was_measured_rests_twice_as_long_each_time_but_for_operators(
    tmp_path: Path,
) -> None:
    """Each drift has numbers of its own: they are no other reason."""
    house = House(Cluster({"cpu-1-a": "n-1"}), tmp_path, "one", host=NODE)
    for ratio, rest_s in ((1.7, 0.0), (1.8, REST_S), (1.6, 2 * REST_S)):
        house.request(f"runs {ratio} times as long as its profile says, for 61 s", f"{ratio}")
        if rest_s:
            assert await house.look(rest_s - 2 * LOOK_EVERY_S) == []
            assert await house.look() == []
        assert len(await house.look()) == 1
    house.request("runs 1.9 times as long as its profile says, for 62 s", "later")
    assert await house.look(2 * REST_S) == []
    house.request("was asked for at noon", "noon")
    assert len(await house.look()) == 1


async def test_an_artifact_that_cannot_be_fetched_now_is_tried_again_soon(tmp_path: Path) -> None:
    away = refusing(VariantNotLoadable("its artifact cannot be read: no space left"))
    house = House(Cluster({"cpu-1-a": "n-1"}, away), tmp_path, "one")

    assert len(await house.look()) == 1
    assert len(await house.look()) == 1
    house.cluster.answer = refusing(ArtifactDamaged("its artifact is missing"))
    assert len(await house.look()) == 1
    assert await house.look(REFUSED_S / 2) == []


async def test_a_node_with_a_wrong_setting_waits_and_not_the_variant(tmp_path: Path) -> None:
    house = House(Cluster({"cpu-1-a": "n-1"}), tmp_path, "one", "two")
    house.cluster.beginning = refusing(InvalidInput("node n-1: MODELLESS_REDIS_URL is no URL"))

    assert len(await house.look()) == 1
    [event] = await house.events()
    assert event.message == "on cpu-1: INVALID_INPUT: node n-1: MODELLESS_REDIS_URL is no URL"
    house.cluster.placed = {"cpu-1-a": "n-1", "cpu-1-b": "n-2"}
    house.workers = {"cpu-1-a": status(0.0), "cpu-1-b": status(0.5)}
    assert len(await house.look()) == 2
    house.cluster.beginning = None
    assert len(await house.look(LONGEST_S)) == 2
    assert len(house.catalog.snapshot().profiles) == 2


async def test_what_was_measured_is_kept_when_the_catalog_is_back(tmp_path: Path) -> None:
    away = LosingWrites()
    house = House(Cluster({"cpu-1-a": "n-1"}), tmp_path, "one", catalog=away)
    away.lost = 2
    assert len(await house.look()) == 1
    assert await house.look() == []
    assert away.snapshot().profiles == ()
    assert await house.look() == []
    assert len(away.snapshot().profiles) == 1
    assert await house.look() == []
