"""The device kind of this machine: what it draws idle and what that emits."""

import os
from pathlib import Path

import pytest

from controlplane import machine
from controlplane.machine import machine_kinds
from controlplane.settings import Settings, load_settings
from profiler.hardware_counters import Reading
from variants.errors import InvalidInput


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


def test_carbon_that_is_no_number_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="MODELLESS_CARBON_G_PER_KWH: 'much'"):
        machine_kinds(settings(tmp_path, carbon_g_per_kwh="much"), lambda: None)
