"""``modelless simulate`` by a sample, with machines that are split, and with several gateways."""

from pathlib import Path

import pytest

from tests.controlplane.cli.planning.simulated import KEYS, MEASURED, busy, simulate
from tests.controlplane.cli.shell import Shell
from tests.controlplane.files.builders import RATES, write_all

SAMPLED_KEYS = [
    "windows", "played", "scale", "violation_ratio_error", "effective_accuracy_error",
]  # fmt: skip


def test_a_sample_counts_no_energy(shell: Shell, paths: dict[str, Path]) -> None:
    ended = simulate(shell, paths, "--approximate", "--objective", "energy")

    assert (ended.code, "--approximate counts no energy" in ended.err) == (2, True)


def test_a_sample_of_a_trace_of_rates_is_played(shell: Shell, paths: dict[str, Path]) -> None:
    exact = simulate(shell, paths, "--objective", "accuracy", "--json").json()
    ended = simulate(shell, paths, "--objective", "accuracy", "--approximate", "--json")

    report = ended.json()
    assert (ended.code, ended.err) == (0, "")
    assert list(report) == [*KEYS, *SAMPLED_KEYS]
    assert report["requests"] == 1_200
    assert report["cost_usd"] == pytest.approx(exact["cost_usd"], rel=0.05)
    assert report["scale"] == 1.0


def test_a_sample_is_told_as_such(shell: Shell, paths: dict[str, Path]) -> None:
    said = simulate(shell, paths, "--approximate").out

    assert "each stands for" in said
    assert "violations +-" in said


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--policy", "infaas"), "plays the policy modelless only"),
        (("--instant",), "needs time, of which --instant leaves none"),
        (("--tick-s", "0.5"), "whole seconds"),
    ],
)
def test_what_cannot_be_sampled_is_refused(
    shell: Shell, paths: dict[str, Path], options: tuple[str, ...], why: str
) -> None:
    ended = simulate(shell, paths, "--approximate", *options)

    assert ended.code == 2
    assert why in ended.err


def test_queries_are_no_rates(shell: Shell, tmp_path: Path) -> None:
    ended = simulate(shell, write_all(tmp_path), "--approximate")

    assert ended.code == 2
    assert "second" in ended.err


LAYOUT_CATALOG = """\
task,model,variant,accuracy,device_kind,batch_size,latency_ms,memory_mib,load_s
digits,s,s-fp32,0.9,cpu-1,1,10,,
digits,s,s-fp32,0.9,cpu-2,1,10,,
digits,s,s-fp32,0.9,cpu-8,1,10,,
"""
LAYOUT_DEVICES = """\
device_kind,count,memory_mib,usd_per_hour
cpu-1,1,,0.1
cpu-2,1,,0.2
cpu-8,1,,0.8
"""


def test_a_machine_is_split_where_that_serves_more(shell: Shell, tmp_path: Path) -> None:
    paths = write_all(tmp_path, catalog=LAYOUT_CATALOG, devices=LAYOUT_DEVICES, trace=busy(60))
    options = ["--layouts", "1xcpu-2|2xcpu-1", "--tick-s", "1", "--linger-s", "30"]

    told = simulate(shell, paths, *options, "--json").json()

    assert list(told) == [*KEYS, "layout_changes", "each_layout"]
    [change] = told["layout_changes"]
    assert (change["layout"], change["given_up"]) == ("2xcpu-1", "")
    assert change["why"].startswith("The machine is split into 2xcpu-1: this serves all of ")
    one, two = told["each_layout"]
    assert (one["layout"], two["layout"]) == ({"cpu-2": 1}, {"cpu-1": 2})
    assert two["violation_ratio"] < told["violation_ratio"] < one["violation_ratio"]
    shown = simulate(shell, paths, *options).out
    assert "1xcpu-2" in shown
    assert f"{change['at_s']:.0f}" in shown


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--layouts", "1xcpu-4|2xcpu-1"], "no device kind cpu-4"),
        (["--layouts", "cpu"], "how many cores"),
        (["--layouts", ""], "--layouts names no device kind"),
        (["--layouts", "1xcpu-2|2xcpu-1", "--policy", "all"], "plays the policy modelless only"),
        (["--layouts", "1xcpu-2|2xcpu-1", "--bound"], "goes with none of"),
        (["--linger-s", "-1"], "--linger-s -1 is not possible"),
    ],
)
def test_layouts_that_cannot_be_are_refused(
    shell: Shell, tmp_path: Path, options: list[str], why: str
) -> None:
    paths = write_all(tmp_path, catalog=LAYOUT_CATALOG, devices=LAYOUT_DEVICES, trace=busy(2))
    ended = simulate(shell, paths, *options)
    assert ended.code == 2
    assert why in ended.err


def test_several_gateways_know_less_than_one(shell: Shell, tmp_path: Path) -> None:
    paths = write_all(tmp_path, trace=hurried(10))
    options = ["--fixed-fleet", "--json"]
    one, told, four, stay = (
        simulate(shell, paths, *options, *more).json()
        for more in (
            [],
            ["--gateways", "1"],
            ["--gateways", "4"],
            ["--gateways", "4", "--tasks-stay"],
        )
    )

    for each in (one, told, four, stay):
        assert list(each) == KEYS
        assert each["requests"] == each["in_time"] + each["late"] + each["rejected"]
        for key in MEASURED:
            del each[key]
    assert one == told
    assert four != one
    assert stay != four


def hurried(seconds: int) -> str:
    """A trace of 1,200 queries per second, half of which have less time than the others."""
    header = RATES.split("\n", maxsplit=1)[0]
    rows = (f"{s},digits,600,{ms},\n" for s in range(seconds) for ms in (40, 100))
    return f"{header}\n" + "".join(rows)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--gateways", "0"], "--gateways must be from 1 to 64, not 0"),
        (["--gateways", "65"], "--gateways must be from 1 to 64, not 65"),
        (["--gateways", "two"], "it must be a whole number"),
        (["--tasks-stay"], "--tasks-stay is for several gateways, and --gateways is 1"),
        (["--gateways", "2", "--policy", "all"], "--gateways plays the policy modelless only"),
        (["--gateways", "2", "--policy", "hpa"], "--gateways plays the policy modelless only"),
        (["--gateways", "2", "--instant"], "goes with neither --instant nor --approximate"),
        (["--gateways", "2", "--approximate"], "goes with neither --instant nor --approximate"),
    ],
)
def test_gateways_that_cannot_be_are_refused(
    shell: Shell, paths: dict[str, Path], options: list[str], why: str
) -> None:
    ended = simulate(shell, paths, *options)
    assert ended.code == 2
    assert why in " ".join(ended.err.split())
