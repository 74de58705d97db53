"""What an autoscaler may start, and what it is asked for."""

import pytest

from controlplane.cluster.autoscaling.node_requests import Bundle, NodeRequest, node_request
from controlplane.cluster.autoscaling.node_types import Autoscaler, NodeType, autoscaler_of
from controlplane.slices import Kind, filled_in, slices_of
from variants.types import DeviceKindName

HERE, SPOT, GPU = (DeviceKindName(name) for name in ("cpu-4", "cpu-4-spot", "nvidia-l4"))
FILE = {
    "max_workers": 6,
    "idle_timeout_minutes": 5,
    "head_node_type": "head",
    "available_node_types": {
        "head": {"resources": {"CPU": 0}, "max_workers": 0},
        "old": {"resources": {"CPU": 4}, "min_workers": 1, "max_workers": 2},
        "spot": {"resources": {"CPU": 8}, "labels": {"modelless.io/kind": "cpu-4-spot"}},
        "l4": {
            "resources": {"CPU": 8, "GPU": 2},
            "max_workers": 1,
            "labels": {"modelless.io/kind": "nvidia-l4"},
        },
    },
}


def kinds(text: str) -> tuple[Kind, ...]:
    return filled_in(
        slices_of(text), memory_mib=1, all_memory_mib=1, usd_per_core_hour=0.04, elastic=False
    )


BOTH = kinds("1-9xcpu-4,0-9xcpu-4-spot:nodes=modelless.io/kind=cpu-4-spot")
"""One that runs anywhere, and one with a label of its own."""


def spots(most: int) -> Autoscaler:
    label = {"modelless.io/kind": "cpu-4-spot"}
    types = (
        NodeType(name="old", least=0, most=2, cores=4),
        NodeType(name="spot", least=0, most=most, cores=4, labels=label),
    )
    return Autoscaler(types=types)


def test_the_file_of_ray_up_says_what_may_be_started() -> None:
    found = autoscaler_of(FILE, reads_labels=True)

    assert [(one.name, one.least, one.most) for one in found.types] == [
        ("head", 1, 1), ("old", 1, 2), ("spot", 0, 6), ("l4", 0, 1),
    ]  # fmt: skip
    assert (found.idle_s, found.reads_labels) == (300.0, True)
    assert (found.types[3].gpus, dict(found.types[2].labels)) == (
        2.0,
        {"modelless.io/kind": "cpu-4-spot"},
    )


@pytest.mark.parametrize("file", [{"available_node_types": {"a": 1}}, {"max_workers": "many"}])
def test_what_is_no_such_file_is_refused(file: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError, AttributeError)):
        autoscaler_of(file, reads_labels=True)


def test_nothing_is_asked_for_while_all_workers_are_there() -> None:
    there = {HERE: 2, SPOT: 1}
    assert node_request(BOTH, there, there, spots(4)) == NodeRequest()
    assert node_request(BOTH, {HERE: 1}, there, spots(4)) == NodeRequest()


def test_while_one_is_missing_room_is_asked_for_all_of_its_kind() -> None:
    """What runs takes its part of the room. Idle nodes of other kinds are not kept."""
    asked = node_request(BOTH, {HERE: 1, SPOT: 2}, {HERE: 1, SPOT: 1}, spots(4))

    assert asked == NodeRequest(bundles=(Bundle(kind=BOTH[1], count=2),), missing={SPOT: 1})


def test_a_kind_without_any_node_is_asked_for() -> None:
    asked = node_request(BOTH, {HERE: 1, SPOT: 1}, {HERE: 1}, spots(4))
    assert asked.missing == {SPOT: 1}


def test_no_more_is_asked_for_than_may_be_started() -> None:
    """Ray starts nothing of a request that is too much."""
    asked = node_request(BOTH, {SPOT: 5}, {SPOT: 1}, spots(3))

    assert (asked.bundles, asked.missing) == ((Bundle(kind=BOTH[1], count=3),), {SPOT: 2})
    assert "room for 3 of 5 workers of cpu-4-spot" in asked.remarks[0]


def test_workers_on_nodes_that_somebody_started_by_hand_are_no_more_than_may_be() -> None:
    asked = node_request(BOTH, {SPOT: 5}, {SPOT: 4}, spots(3))
    assert (asked.bundles, asked.missing) == ((), {})


def test_a_label_that_no_node_type_has_is_told() -> None:
    asked = node_request(BOTH, {SPOT: 1}, {}, Autoscaler(types=spots(3).types[:1]))

    assert asked.bundles == ()
    assert (
        "no node type of the autoscaler has the label modelless.io/kind=cpu-4-spot"
        in (asked.remarks[0])
    )


def test_what_may_be_started_is_not_known_on_kubernetes() -> None:
    asked = node_request(BOTH, {SPOT: 5}, {}, Autoscaler())
    assert asked == NodeRequest(bundles=(Bundle(kind=BOTH[1], count=5),), missing={SPOT: 5})


def test_rays_first_autoscaler_knows_no_labels() -> None:
    asked = node_request(BOTH, {HERE: 2, SPOT: 1}, {}, Autoscaler(reads_labels=False))

    assert asked.bundles == (Bundle(kind=BOTH[0], count=2),)
    assert "RAY_enable_autoscaler_v2=1" in asked.remarks[0]


def test_workers_with_a_gpu_need_as_many_gpus() -> None:
    [l4] = kinds("0-9xnvidia-l4:cores=1:memory_mib=8:nodes=modelless.io/kind=nvidia-l4")
    asked = node_request([l4], {GPU: 3}, {}, autoscaler_of(FILE, reads_labels=True))
    assert asked.bundles == (Bundle(kind=l4, count=2),)


def test_kinds_share_the_types_and_the_most_of_all_nodes() -> None:
    """One bundle too many, and Ray starts nothing of the request."""
    file = {
        "max_workers": 3,
        "head_node_type": "head",
        "available_node_types": {
            "head": {"resources": {"CPU": 4}},
            "any": {"resources": {"CPU": 4}},
            "spot": {"resources": {"CPU": 4}, "labels": {"modelless.io/kind": "cpu-4-spot"}},
        },
    }
    asked = node_request(BOTH, {HERE: 3, SPOT: 3}, {}, autoscaler_of(file, reads_labels=True))

    assert asked.missing == {HERE: 3, SPOT: 1}, "one runs on the head"
    assert "room for 1 of 3 workers of cpu-4-spot" in asked.remarks[0]

    runs = node_request(BOTH, {HERE: 3, SPOT: 3}, {SPOT: 2}, autoscaler_of(file, reads_labels=True))
    assert runs.missing == {HERE: 2}, "two on the spot nodes, and one on the head"


def test_other_nodes_than_those_by_name_are_not_asked_for() -> None:
    [one] = kinds("0-9xcpu-4-amx:cores=4:nodes=ray.io/node-id=abcd")
    asked = node_request([one], {one.name: 1}, {}, Autoscaler())
    assert (asked.bundles, asked.missing) == ((), {})
    assert "give its nodes the label modelless.io/kind" in asked.remarks[0]


def test_what_does_not_come_for_long_keeps_no_idle_nodes() -> None:
    asked = node_request(BOTH, {HERE: 2, SPOT: 1}, {HERE: 1}, spots(3), {SPOT})

    assert asked.bundles == (Bundle(kind=BOTH[0], count=2),)
    assert asked.missing == {HERE: 1, SPOT: 1}
    assert "1 of 1 worker of cpu-4-spot has been missing for long" in asked.remarks[0]
