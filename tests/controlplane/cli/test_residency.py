"""``pin``, ``forbid``, ``evict``, ``drain``, ``freeze``, ``thaw`` and ``rules``, with a gateway."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.cli.commands.residency.operator import operator
from tests.controlplane.builders import worker
from tests.controlplane.cli.gateway import Gateway
from tests.controlplane.cli.shell import Shell
from variants.types import DeviceKindName

MLP, LINEAR = "mlp-v1-onnx-int8", "linear-v1-onnx-fp32"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path) as gateway:
        gateway.live.statuses = [worker("w1", MLP, LINEAR)]
        gateway.catalog.set_inventory(DeviceKindName("cpu-4"), 1)
        yield gateway


def test_rules_are_given_listed_and_taken_back(gateway: Gateway, shell: Shell) -> None:
    url = gateway.url
    assert (
        shell("rules", "list", url=url).out
        == "There is no rule; `modelless pin`, `forbid` and `freeze` make them.\n"
    )
    pinned = shell("pin", "digits", MLP, "--why", "release", url=url)
    assert (pinned.code, pinned.err) == (0, "")
    assert pinned.out == f"rule 1: pin digits/{MLP}. 1 of 1 replica ready.\n"
    forbidden = shell("forbid", "digits", LINEAR, "--kind", "cpu-4", url=url)
    assert forbidden.out == f"rule 2: forbid digits/{LINEAR} on cpu-4. It still leaves w1.\n"

    head, first, second = shell("rules", "list", url=url).out.splitlines()
    assert head.split() == [
        "ID",
        "RULE",
        "WHAT",
        "SINCE",
        "(UTC)",
        "UNTIL",
        "(UTC)",
        "BY",
        "WHY",
        "NOW",
    ]
    assert first.split()[:3] == ["1", "pin", f"digits/{MLP}"]
    assert "release" in first
    assert second.split()[:5] == ["2", "forbid", f"digits/{LINEAR}", "on", "cpu-4"]
    rows = shell("rules", "list", "-o", "json", url=url).json()
    assert [(row["id"], row["by"]) for row in rows] == [(1, operator()), (2, operator())]

    removed = shell("rules", "remove", "2", url=url)
    assert removed.out == f"rule 2 was taken back: digits/{LINEAR} on cpu-4\n"
    again = shell("rules", "remove", "2", url=url)
    assert (again.code, again.err) == (1, "error: there is no rule 2; there are: 1\n")
    assert [rule.id for rule in gateway.catalog.rules()] == [1]


def test_more_workers_than_there_are_cannot_hold_a_pin(gateway: Gateway, shell: Shell) -> None:
    refused = shell("pin", "digits", "slow-v1-onnx-fp32", "--replicas", "99", url=gateway.url)
    assert refused.code == 1
    assert "on 99 workers, and at most 1 could hold it" in refused.err
    wrong = shell("pin", "digits", MLP, "--replicas", "0", url=gateway.url)
    assert wrong.code == 2
    assert gateway.catalog.rules() == ()


def test_the_plan_is_frozen_and_thawed(gateway: Gateway, shell: Shell) -> None:
    url = gateway.url
    nothing = shell("thaw", url=url)
    assert (nothing.code, nothing.err) == (1, "error: the plan is not frozen\n")
    frozen = shell("freeze", "--for", "2h", "--why", "sale", url=url)
    assert (frozen.code, frozen.out[:29]) == (0, "the plan stays as it is until")
    [rule] = gateway.catalog.rules()
    assert (rule.until_s or 0.0) - rule.at_s == 7_200.0
    assert "The plan is frozen since" in shell("status", url=url).out
    longer = shell("freeze", url=url)
    assert longer.out == "the plan stays as it is, until `modelless thaw`\n"
    id_ = str(gateway.catalog.rules()[0].id)
    taken = shell("rules", "remove", id_, url=url)
    assert taken.out == f"rule {id_} was taken back: plans are made again\n"
    shell("freeze", url=url)
    assert shell("thaw", url=url).out == "plans are made again\n"
    assert gateway.catalog.rules() == ()
    for text, why in (
        ("soon", "is no duration such as"),
        ("0s", "is too short"),
        ("400d", "is too long: at most 366 days"),
    ):
        wrong = shell("freeze", "--for", text, url=url)
        assert (wrong.code, f"--for {text!r} {why}" in wrong.err) == (2, True)


def test_a_variant_is_evicted_unless_it_is_pinned(gateway: Gateway, shell: Shell) -> None:
    url = gateway.url
    gone = shell("evict", "digits", MLP, "--worker", "w1", url=url)
    assert (gone.code, gone.err) == (0, "")
    assert gone.out == (
        f"digits/{MLP} was unloaded from w1. The plan does not place it there now; it may be "
        "loaded again later, by a plan or for a query.\n"
    )
    assert gateway.live.unloaded == [("w1", "digits", MLP)]
    shell("pin", "digits", MLP, url=url)
    refused = shell("evict", "digits", MLP, url=url)
    assert (refused.code, "is pinned by rule 1" in refused.err) == (1, True)


def test_a_worker_leaves_where_another_one_answers_meanwhile(
    gateway: Gateway, shell: Shell
) -> None:
    url, live = gateway.url, gateway.live
    alone = shell("drain", "w1", url=url)
    assert (alone.code, "is the only one that takes queries" in alone.err) == (1, True)
    assert "--allow-gap" in alone.err
    assert live.drained == []
    live.statuses = [worker("w1", MLP), worker("w2"), replace(worker("w3", MLP), draining=True)]
    holds = shell("drain", "w1", url=url)
    assert (holds.code, live.drained) == (1, [])
    assert "worker w1 alone holds variants of digits: their queries have to wait" in holds.err
    live.statuses[1] = worker("w2", LINEAR)
    told = shell("drain", "w1", "--why", "it grows", url=url)
    assert (told.code, told.err) == (0, "")
    assert told.out == (
        "w1: It has answered all that it had, and leaves; another one takes its place within "
        "seconds.\n"
    )
    assert live.drained == ["w1"]
    event = gateway.catalog.events(1)[-1]
    assert (event.kind, event.subject) == ("worker_told_to_leave", "w1")
    assert event.message == f"by {operator()}: it grows"
    going = shell("drain", "w3", url=url)
    assert (going.code, going.err) == (1, "error: worker w3 leaves already\n")
    unknown = shell("drain", "w9", url=url)
    assert unknown.err == "error: there is no worker 'w9'; there are: w1, w2, w3\n"
    live.statuses = [worker("w1", MLP)]
    row = shell("drain", "w1", "--allow-gap", "-o", "json", url=url).json()
    assert (row["done"], row["others"], live.drained) == (True, 0, ["w1", "w1"])


def test_of_many_workers_a_few_are_named_to_who_names_none(gateway: Gateway, shell: Shell) -> None:
    gateway.live.statuses = [worker(f"w{number:03}") for number in range(300)]
    few = "there are: w000, w001, w002, w003, w004 and 295 more\n"
    for asked in (("drain", "x"), ("workers", "get", "x")):
        told = shell(*asked, url=gateway.url)
        assert (told.code, told.err) == (1, f"error: there is no worker 'x'; {few}"), asked
    gateway.live.statuses = []
    told = shell("workers", "get", "x", url=gateway.url)
    assert told.err == "error: there is no worker 'x'; none is there\n"


def test_workers_drain_is_the_same_for_a_worker(gateway: Gateway, shell: Shell) -> None:
    url, live = gateway.url, gateway.live
    alone = shell("workers", "drain", "w1", url=url)
    assert (alone.code, "is the only one that takes queries" in alone.err) == (1, True)
    told = shell("workers", "drain", "w1", "--allow-gap", "--why", "it grows", url=url)
    assert (told.code, told.err, live.drained) == (0, "", ["w1"])
    assert told.out.startswith("w1: It has answered all that it had, and leaves")
    assert gateway.catalog.events(1)[-1].message == f"by {operator()}: it grows"
    unknown = shell("workers", "drain", "w9", url=url)
    assert (unknown.code, "there is no worker 'w9'" in unknown.err) == (1, True), unknown
