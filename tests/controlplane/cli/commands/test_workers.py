"""The commands of workers, against a real gateway on a free port."""

import os
import re
from dataclasses import asdict, fields
from typing import Any

import pytest

from controlplane.cli import gateway_client
from controlplane.cli.gateway_client import Client
from tests.controlplane.builders import worker
from tests.controlplane.cli.gateway import Gateway
from tests.controlplane.cli.shell import Shell
from variants.types import DeviceKindName, Plan
from workers.types import WorkerStatus


def test_many_workers_are_asked_for_in_parts(
    gateway: Gateway, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"cpu-4-{letter}" for letter in "edcba"]
    gateway.live.statuses = [worker(name) for name in names]
    asked = list[dict[str, Any]]()
    whole = Client.get

    def get(client: Client, path: str, **parameters: Any) -> Any:
        asked.append(parameters)
        return whole(client, path, **parameters)

    monkeypatch.setattr(Client, "get", get)
    monkeypatch.setattr(gateway_client, "WORKERS_AT_ONCE", 2)
    rows = shell("workers", "list", "-o", "json", url=gateway.url).json()

    assert [row["worker"] for row in rows] == sorted(names)
    assert [one["after"] for one in asked] == [None, "cpu-4-b", "cpu-4-d"]


def test_scaling_says_what_is_wanted_and_what_runs(gateway: Gateway, shell: Shell) -> None:
    scaled = shell("workers", "scale", "cpu-4", "3", url=gateway.url)
    again = shell("workers", "scale", "cpu-4", "1", "-o", "json", url=gateway.url)

    assert scaled.code == 0
    assert scaled.out.startswith(
        "cpu-4: 3 wanted, 1 running; not all can start: no worker cpu-4 can run on this machine"
    )
    assert again.json() == {
        "device_kind": "cpu-4", "wanted": 1, "running": 1, "draining": 0, "silent": 0,
        "missing": 0, "asked": 1, "source": "stored", "settings": None, "lack": "",
    }  # fmt: skip
    assert gateway.catalog.inventory() == {DeviceKindName("cpu-4"): 1}


def test_who_scales_the_last_kind_to_nothing_is_told(gateway: Gateway, shell: Shell) -> None:
    own = f"cpu-{len(os.sched_getaffinity(0))}"
    gateway.catalog.set_inventory(DeviceKindName(own), 1)
    some = shell("workers", "scale", "cpu-4", "0", url=gateway.url).out
    assert some == "cpu-4: 0 wanted, 1 running\n"
    gateway.catalog.set_inventory(DeviceKindName(own), 0)
    none = shell("workers", "scale", "cpu-4", "0", url=gateway.url).out
    assert none == (
        "cpu-4: 0 wanted, 1 running; no worker is wanted any more, so no query can be answered:"
        " `modelless workers scale cpu-4 1` asks for one\n"
    )


def test_workers_are_listed_with_what_is_missing(gateway: Gateway, shell: Shell) -> None:
    for kind, count in ((f"cpu-{len(os.sched_getaffinity(0))}", 0), ("cpu-4", 1), ("x-1", 0)):
        gateway.catalog.set_inventory(DeviceKindName(kind), count)
    gateway.catalog.set_inventory(DeviceKindName("cpu-4"), 1)
    met = shell("workers", "list", url=gateway.url).out
    gateway.catalog.set_inventory(DeviceKindName("cpu-4"), 3)
    gateway.catalog.set_inventory(DeviceKindName("x-1"), 1)

    lines = shell("workers", "list", url=gateway.url).out.splitlines()

    assert "wanted" not in met
    assert lines[-1] == "cpu-4: 3 wanted, 1 running; x-1: 1 wanted, 0 running"


def test_a_worker_that_is_silent_or_slow_says_so_where_workers_are_told(
    gateway: Gateway, shell: Shell
) -> None:
    for found, state, why in (
        ({"silent_s": 4.2}, "silent for 4 s", "cpu-4-a: it has not answered for 4 s"),
        (
            {"slowness": 2.6, "spared": True},
            "slow",
            "cpu-4-a: it takes 2.6 times as long as others",
        ),
    ):
        gateway.live.statuses = [asdict(worker("cpu-4-a", "mlp-v1-onnx-int8")) | found]
        for command in (("workers", "list"), ("workers", "get", "cpu-4-a"), ("status",)):
            ended = shell(*command, url=gateway.url)
            assert re.search(rf"cpu-4-a +cpu-4 +{state} ", ended.out), command
            assert why in ended.out + ended.err


def test_zones_are_shown_where_workers_are_in_some(gateway: Gateway, shell: Shell) -> None:
    commands = (("workers", "list"), ("devices", "list"))
    assert not any("ZONE" in shell(*words, url=gateway.url).out for words in commands)
    [found] = gateway.live.statuses
    assert isinstance(found, WorkerStatus)
    seen = {field.name: getattr(found, field.name) for field in fields(WorkerStatus)}
    gateway.live.statuses = [{**seen, "zone": "edge", "round_trip_ms": 18.4}]

    listed, devices = (shell(*words, url=gateway.url).out for words in commands)

    assert re.search(r"ZONE +MS AWAY", listed)
    assert re.search(r"cpu-4-a +cpu-4 +edge +18 ", listed)
    assert re.search(r"RUNNING +ZONES +NODES", devices)
    assert re.search(r"cpu-4 .* edge ", devices)


def test_what_becomes_of_the_demand_of_zones_is_told(gateway: Gateway, shell: Shell) -> None:
    far = "Asked for in zone edge: no worker is near enough to answer digits within 50 ms in time."
    epoch = gateway.catalog.acquire_leadership("here")
    said = ("everything fits", far)
    plan = Plan(version=0, epoch=epoch, placements=(), workers={}, explanation=said)
    gateway.catalog.put_plan(plan)
    listed = shell("workers", "list", url=gateway.url).out
    assert far in listed
    assert said[0] not in listed
    assert far in " ".join(shell("plan", "get", url=gateway.url).out.split())


def test_scaling_an_unknown_kind_is_exit_code_1(gateway: Gateway, shell: Shell) -> None:
    ended = shell("workers", "scale", "gpu", "1", url=gateway.url)

    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("error: there is no device kind 'gpu'; there are: cpu-")
