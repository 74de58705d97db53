"""What an installation knows, as planning files: the simulator reads what is exported."""

from dataclasses import replace
from pathlib import Path
from time import time

import pytest

from controlplane.files.catalog import read_catalog, read_devices
from controlplane.files.demand import read_demand, read_trace
from controlplane.views.history import slot_of
from tests.controlplane.cli.gateway import Gateway
from tests.controlplane.cli.shell import Shell
from variants.types import DeviceKindName, Stage, TaskName
from variants.working_memory import counted_mib


def test_what_is_exported_is_read_as_it_was_known(
    gateway: Gateway, shell: Shell, tmp_path: Path
) -> None:
    gateway.catalog.set_inventory(DeviceKindName("cpu-4"), 3)
    catalog, devices = tmp_path / "catalog.csv", tmp_path / "devices.csv"

    shell("export", "catalog", "--to", str(catalog), url=gateway.url)
    shell("export", "devices", "--to", str(devices), url=gateway.url)

    (kind,) = read_devices(devices)
    known = gateway.catalog.snapshot()
    (device,) = known.device_kinds
    assert (kind.name, kind.count) == ("cpu-4", 3)
    assert (kind.memory_mib, kind.usd_per_hour) == (device.memory_mib, device.usd_per_hour)
    offers = {offer.variant: offer for offer in read_catalog(catalog, (kind,))}
    assert offers.keys() == {variant.name for variant in known.variants}
    for variant in known.variants:
        (profile,) = (p for p in known.profiles if p.variant == variant.name)
        offer = offers[variant.name]
        assert (offer.model, offer.accuracy) == (variant.model_version, variant.accuracy)
        assert offer.memory_mib == profile.memory_mib
        assert offer.curve.latency_ms(1) == pytest.approx(profile.points[0].p50_ms)


def test_memory_is_exported_as_plans_count_it(
    gateway: Gateway, shell: Shell, tmp_path: Path
) -> None:
    known = gateway.catalog.snapshot()
    (device,) = known.device_kinds
    profile = replace(known.profiles[0], memory_mib=90.0, working_mib=40.0)
    gateway.catalog.put_profiles((profile,))
    catalog, devices = tmp_path / "catalog.csv", tmp_path / "devices.csv"

    shell("export", "catalog", "--to", str(catalog), url=gateway.url)
    shell("export", "devices", "--to", str(devices), url=gateway.url)

    offers = {offer.variant: offer for offer in read_catalog(catalog, read_devices(devices))}
    assert offers[profile.variant].memory_mib == counted_mib(profile, device) == 50.0


def test_what_does_not_answer_is_left_out(gateway: Gateway, shell: Shell) -> None:
    one = gateway.catalog.snapshot().versions[0]
    gateway.catalog.set_stage([TaskName(one.task)], one.model, one.version, Stage.RETIRED)

    shown = shell("export", "catalog", url=gateway.url).out

    header, *rows = shown.splitlines()
    assert header.startswith("task,model,variant,accuracy,device_kind,batch_size,latency_ms,")
    assert rows
    assert not any(row.split(",")[1] == f"{one.model}-v{one.version}" for row in rows)


def test_a_file_that_cannot_be_written_is_one_sentence(gateway: Gateway, shell: Shell) -> None:
    told = shell("export", "devices", "--to", "/nowhere/d.csv", url=gateway.url)

    assert told.code == 2
    assert told.err == "error: /nowhere/d.csv cannot be written: No such file or directory\n"


def test_what_was_asked_becomes_a_demand_and_a_trace(
    gateway: Gateway, shell: Shell, tmp_path: Path
) -> None:
    variant = gateway.catalog.snapshot().variants[0]
    slot, name = slot_of(time()) - 3, f"{variant.task}|50.0|"
    pinned = f"{name}@{variant.name}"
    gateway.live.samples = [
        {"slot": slot - 1, "tasks": {}, "asked": {name: 100, f"{name}0.5": 20}},
        {"slot": slot, "tasks": {}, "asked": {name: 50, pinned: 10}},
    ]
    trace, demand = tmp_path / "trace.csv", tmp_path / "demand.csv"

    told = shell("export", "trace", "--to", str(trace), url=gateway.url)
    shell("export", "demand", "--last", "40s", "--to", str(demand), url=gateway.url)

    assert told.err == "note: 10 rows named a variant; here they ask for its accuracy\n"
    lines = [line.split(",") for line in trace.read_text().splitlines()]
    assert lines[0] == ["second", "task", "requests", "latency_slo_ms", "min_accuracy"]
    by_floor = dict[str, float]()
    for _, _, requests, _, floor in lines[1:]:
        by_floor[floor] = by_floor.get(floor, 0.0) + float(requests)
    assert by_floor == pytest.approx({"": 150, "0.5": 20, str(variant.accuracy): 10})
    assert {int(line[0]) for line in lines[1:] if line[4] == ""} == set(range(20))
    assert {line[2] for line in lines[1:] if line[4] == "" and int(line[0]) < 10} == {"10.0"}
    assert len(read_trace(trace, {variant.task}, seed=0).arrival_s) > 100
    rates = {one.accuracy: one.qps for one in read_demand(demand, {variant.task})}
    assert rates == {None: 7.5, 0.5: 1.0, variant.accuracy: 0.5}


def test_that_nothing_was_asked_is_said(gateway: Gateway, shell: Shell) -> None:
    told = shell("export", "trace", "--last", "5m", url=gateway.url)
    assert told.code == 2
    assert told.err.startswith("error: nothing was asked in the last 5m")
    for wrong in ("2h", "1s", "x"):
        assert shell("export", "demand", "--last", wrong, url=gateway.url).code == 2
