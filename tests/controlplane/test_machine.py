"""The device kind of this machine: what it draws idle and what that emits."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane import machine
from controlplane.machine import changed_kinds, kinds_to_register, machine_kinds, renew_kinds
from controlplane.settings import Settings, load_settings
from profiler.hardware_counters import Reading
from variants.catalog.memory import MemoryCatalog
from variants.container import usable_cores
from variants.types import DeviceKind


class Counter:
    least_s = 0.001

    def read(self) -> Reading:
        return (0,)

    def energy_j(self, before: Reading, after: Reading) -> float:
        return 1.0


def settings(folder: Path, **changes: object) -> Settings:
    return load_settings(state_dir=folder, cores=1, **changes)


def test_what_counters_do_not_say_is_not_known(tmp_path: Path) -> None:
    [kind] = machine_kinds(settings(tmp_path), lambda: None)

    assert (kind.idle_w, kind.carbon_g_per_kwh) == (None, ())


@pytest.mark.parametrize(
    ("ray_address", "measured"),
    [("", ["cpu-2", "cpu-1", "nvidia-h200"]), ("auto", ["cpu-2", "nvidia-h200"])],
)
def test_on_a_cluster_a_model_is_registered_with_the_first_kind_of_cores(
    tmp_path: Path, ray_address: str, measured: list[str]
) -> None:
    slices = "cpu-2,cpu-1,nvidia-h200:memory_mib=1000"
    given = load_settings(state_dir=tmp_path, slices=slices, ray_address=ray_address)

    assert [kind.name for kind in kinds_to_register(given)] == measured


def test_on_a_cluster_of_gpus_a_model_is_judged_on_the_cores_of_this_machine(
    tmp_path: Path,
) -> None:
    slices = "nvidia-h200:memory_mib=1000"
    given = load_settings(state_dir=tmp_path, slices=slices, ray_address="auto")

    cpu, gpu = kinds_to_register(given)
    assert (cpu.name, cpu.gpu, gpu.name) == (f"cpu-{usable_cores()}", None, "nvidia-h200")


def test_a_worker_draws_the_part_of_its_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "idle_watts", lambda _: 80.0)

    [kind] = machine_kinds(settings(tmp_path), Counter)

    assert kind.idle_w == pytest.approx(80.0 / (os.cpu_count() or 1))


def test_what_is_set_counts(tmp_path: Path) -> None:
    day = " ".join(str(hour) for hour in range(24))
    [kind] = machine_kinds(settings(tmp_path, idle_w=12.5, carbon_g_per_kwh=day), Counter)

    assert kind.idle_w == 12.5
    assert kind.carbon_g_per_kwh == tuple(map(float, range(24)))


def test_each_kind_is_measured_on_its_own_cores_and_the_machine_is_watched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched: list[object] = []

    def watch(meter: object) -> float:
        watched.append(meter)
        return 80.0

    monkeypatch.setattr(machine, "idle_watts", watch)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    given = load_settings(
        state_dir=tmp_path, slices="cpu-1:memory_mib=100,cpu-2:usd_per_hour=0.5:idle_w=7"
    )

    one, two = machine_kinds(given, Counter)

    assert (one.name, one.cores, one.memory_mib, one.usd_per_hour) == ("cpu-1", 1, 100, 0.04)
    assert (two.name, two.cores, two.usd_per_hour) == ("cpu-2", 2, 0.5)
    assert (one.idle_w, two.idle_w) == (20.0, 7.0)
    assert len(watched) == 1


def test_a_kind_with_another_price_or_memory_is_told_and_what_is_not_known_stays(
    tmp_path: Path,
) -> None:
    here = machine_kinds(load_settings(state_dir=tmp_path, slices="cpu-1,cpu-2"), lambda: None)
    one, two = here
    drawn = replace(one, idle_w=5.0)

    assert changed_kinds((), here) == ()
    assert changed_kinds((drawn, two), here) == ()
    assert changed_kinds((drawn, replace(two, usd_per_hour=9.0)), here) == (two,)
    assert changed_kinds((replace(drawn, memory_mib=1.0), two), here) == (one,)


def test_the_catalog_knows_a_kind_as_it_is_set_now(tmp_path: Path) -> None:
    def kinds(memory_mib: int) -> tuple[DeviceKind, ...]:
        given = load_settings(
            state_dir=tmp_path, cores=1, worker_memory_mib=memory_mib, carbon_g_per_kwh="300"
        )
        return machine_kinds(given, lambda: None)

    catalog, (before,), (after,) = MemoryCatalog(), kinds(6_000), kinds(200)
    catalog.put_profiles((), (before,))
    revision = catalog.snapshot().revision

    assert renew_kinds(catalog, (before,)) == ()
    assert catalog.snapshot().revision == revision
    assert renew_kinds(catalog, (after,)) == (after,)
    assert catalog.snapshot().device_kinds == (after,)
    assert after.memory_mib == 200
