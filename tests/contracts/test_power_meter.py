"""What every meter of energy keeps to: a made-up one, and this machine's where it has any."""

import time
from itertools import pairwise
from pathlib import Path

import pytest

from profiler.hardware_counters import PowerMeter, Reading, find_rapl, idle_watts, meter


class MadeUp:
    """Takes 10 W by the clock."""

    least_s = 0.01

    def read(self) -> Reading:
        return (time.perf_counter_ns(),)

    def energy_j(self, before: Reading, after: Reading) -> float:
        return 10.0 * (after[0] - before[0]) / 1e9


@pytest.fixture(params=["made up", "file", "processor", "gpu"])
def power(request: pytest.FixtureRequest, tmp_path: Path) -> PowerMeter:
    if request.param == "made up":
        return MadeUp()
    if request.param == "file":
        folder = tmp_path / "intel-rapl:0"
        folder.mkdir()
        (folder / "name").write_text("package-0\n")
        (folder / "energy_uj").write_text("5000000\n")
        (folder / "max_energy_range_uj").write_text("262143328850\n")
        made, why = find_rapl(tmp_path)
        assert made is not None, why
        return made
    found, why = meter(gpu=request.param == "gpu")
    if found is None:
        pytest.skip(why)
    return found


def test_it_never_runs_backwards(power: PowerMeter) -> None:
    readings = [power.read() for _ in range(3)]
    taken = [power.energy_j(a, b) for a, b in pairwise(readings)]
    assert all(joules >= 0.0 for joules in taken)
    assert power.energy_j(readings[0], readings[0]) == 0.0


def test_what_is_taken_adds_up(power: PowerMeter) -> None:
    first = power.read()
    time.sleep(power.least_s)
    second = power.read()
    time.sleep(power.least_s)
    third = power.read()
    parts = power.energy_j(first, second) + power.energy_j(second, third)
    assert power.energy_j(first, third) == pytest.approx(parts, rel=1e-9, abs=1e-9)


def test_idle_watts_are_none_or_possible(power: PowerMeter) -> None:
    found = idle_watts(power, seconds=power.least_s)
    assert found is None or 0.0 <= found < 10_000.0
