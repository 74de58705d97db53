"""``modelless simulate``: what it prints for a trace."""

import re
from pathlib import Path

import pytest

from controlplane.cli.planning.simulation_results import refused_early
from planner.eviction.registry import RULES
from planner.policies.registry import POLICIES
from tests.controlplane.cli.planning.simulated import KEYS, MEASURED, simulate, steady
from tests.controlplane.cli.shell import Ended, Shell
from tests.controlplane.files.builders import RATES, write_all
from tests.controlplane.plots.builders import interval, report


def test_json_has_the_documented_fields_and_no_other(shell: Shell, paths: dict[str, Path]) -> None:
    ended = simulate(shell, paths, "--json", "--seed", "3")

    report = ended.json()
    assert (ended.code, ended.err) == (0, "")
    assert list(report) == KEYS
    assert (report["policy"], report["seed"]) == ("modelless", 3)
    assert report["requests"] == report["in_time"] + report["late"] + report["rejected"]


ENERGY_KEYS = ["energy_j", "idle_energy_j", "carbon_g", "energy_unmeasured"]


def test_energy_is_counted_where_the_files_say_what_it_is(
    shell: Shell, paths: dict[str, Path]
) -> None:
    joules = ("energy_j", "2", "8", "1", "1", "4")
    lines = zip(paths["catalog"].read_text().splitlines(), joules, strict=True)
    paths["catalog"].write_text("".join(f"{line},{each}\n" for line, each in lines))
    header = "device_kind,count,memory_mib,usd_per_hour,idle_w,carbon_g_per_kwh"
    paths["devices"].write_text(f"{header}\ncpu-4,4,1000,0.1,50,100\ngpu,2,,0.5,5,200\n")

    report = simulate(shell, paths, "--objective", "energy", "--json").json()
    shown = simulate(shell, paths, "--objective", "energy").out

    assert list(report) == [*KEYS, *ENERGY_KEYS]
    assert 0 < report["idle_energy_j"] < report["energy_j"]
    assert report["carbon_g"] > 0
    assert report["energy_unmeasured"] == 0
    assert "J per query in time" in shown


def test_the_same_seed_gives_the_same_report(shell: Shell, paths: dict[str, Path]) -> None:
    once, again = (
        simulate(shell, paths, "--json", "--failures-every-s", "20").json() for _ in "12"
    )

    assert {k: v for k, v in once.items() if k not in MEASURED} == {
        k: v for k, v in again.items() if k not in MEASURED
    }


def test_all_policies_stand_side_by_side(shell: Shell, tmp_path: Path) -> None:
    paths = write_all(tmp_path, trace=steady(15))
    reports = simulate(shell, paths, "--policy", "all", "--json").json()
    paths = write_all(tmp_path, trace=steady(1))
    header = simulate(shell, paths, "--policy", "all").out.splitlines()[0]

    assert header.split() == ["POLICY", *POLICIES]
    assert [one["policy"] for one in reports] == list(POLICIES)
    assert len({one["requests"] for one in reports}) == 1


def test_on_a_narrow_terminal_policies_stand_below_each_other(
    shell: Shell, paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "80")
    ended = simulate(shell, paths, "--policy", "all")
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", ended.out).splitlines()
    assert " ".join(lines[0].split()) == (
        "POLICY REQUESTS LATE REJECTED VIOLATIONS ACCURACY COST USD"
    )
    assert [line.split()[0] for line in lines[2 : 2 + len(POLICIES)]] == list(POLICIES)
    assert "A wider terminal also shows IN TIME, BUSY, LOADS" in ended.out


BOUND_KEYS = [
    "bound_violation_ratio", "bound_accuracy", "bound_cost_usd", "regret_violation_ratio",
    "regret_accuracy", "regret_cost_ratio", "bound_whole_cost_usd", "regret_whole_cost_ratio",
]  # fmt: skip


@pytest.mark.parametrize(
    "objective", ["cost", pytest.param("accuracy", marks=pytest.mark.campaign)]
)
def test_the_bound_stands_beside_every_policy_and_none_beats_it(
    objective: str, shell: Shell, tmp_path: Path
) -> None:
    paths = write_all(tmp_path, trace=steady(15))
    options = ("--policy", "all", "--bound", "--objective", objective)
    reports = simulate(shell, paths, *options, "--json").json()
    paths = write_all(tmp_path, trace=steady(1))
    said = simulate(shell, paths, *options).out

    for one in reports:
        assert list(one) == [*KEYS, *BOUND_KEYS]
        assert one["bound_violation_ratio"] <= one["violation_ratio"]
        assert one["bound_accuracy"] >= one["effective_accuracy"]
        assert one["bound_cost_usd"] <= one["bound_whole_cost_usd"] <= one["cost_usd"]
    rows = [line.partition("  ")[0] for line in said.partition("\n\n")[0].splitlines()[-8:]]
    assert rows == [
        "bound: violations", "bound: accuracy", "bound: cost USD", "bound: whole devices",
        "regret: violations", "regret: accuracy", "regret: cost", "regret: whole devices",
    ]  # fmt: skip


def test_one_policy_is_two_columns(shell: Shell, paths: dict[str, Path]) -> None:
    said = simulate(shell, paths, "--policy", "static-cheapest", "--objective", "accuracy").out

    header, *rows = said.partition("\n\n")[0].splitlines()
    assert header.split() == ["POLICY", "static-cheapest"]
    assert [row.split()[0] for row in rows] == [
        "requests", "in", "late", "rejected", "violations", "accuracy", "cost", "busy", "loads",
        "evictions", "loading", "decision", "decision", "plan", "plan",
    ]  # fmt: skip


def test_what_was_refused_before_there_was_any_device_is_told() -> None:
    empty = interval(devices=0, rejected=3)
    assert refused_early(report("p", empty, empty, interval(), empty)).startswith(
        "6 of the 6 that p rejected came before its first device served: "
    )
    assert refused_early(report("p", interval(), empty)) == ""
    assert refused_early(report("p", interval(devices=0, rejected=0), interval())) == ""


@pytest.mark.parametrize(
    "options",
    [("--failures-every-s", "5"), ("--latency-error", "1:2"), ("--latency-noise", "0.1")],
)
def test_what_takes_time_does_not_go_with_instant(
    options: tuple[str, str], shell: Shell, paths: dict[str, Path]
) -> None:
    ended = simulate(shell, paths, "--instant", *options)

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: --instant knows no time: it goes with none of ")


def test_what_no_variant_could_answer_is_told(shell: Shell, tmp_path: Path) -> None:
    """An SLO in seconds, where milliseconds are meant."""
    header = "arrival_s,task,latency_slo_ms,min_accuracy,max_cost_usd_per_1k\n"
    paths = write_all(tmp_path, trace=f"{header}0,digits,0.05,,\n1,digits,100,0.999,\n")

    said = simulate(shell, paths).out

    assert said.endswith(
        "\n\n2 of the 2 queries ask for what no variant can do: more accuracy than any has (1); "
        "less time than any takes that is accurate and cheap enough (1).\n"
    )


def test_no_accuracy_is_shown_where_no_query_was_in_time(
    shell: Shell, paths: dict[str, Path]
) -> None:
    """The first device is usable only after the trace."""
    said = simulate(shell, paths, "--policy", "static-cheapest", "--provision-s", "9999").out

    rows = [line.split() for line in said.splitlines()]
    assert ["in", "time", "0"] in rows
    assert ["accuracy", "-"] in rows


def test_a_plot_is_written_beside_the_report(
    shell: Shell, paths: dict[str, Path], tmp_path: Path
) -> None:
    ended = simulate(shell, paths, "--plot", str(tmp_path / "plot.html"))

    assert (ended.code, ended.err) == (0, "")
    assert "trace.csv, objective cost" in (tmp_path / "plot.html").read_text()
    assert ended.out.endswith(f"\nDrawn in {tmp_path / 'plot.html'}\n")


def test_profiles_can_be_wrong(shell: Shell, paths: dict[str, Path]) -> None:
    """Twice the time of the same batches of one row: twice the busy time."""
    options = ("--policy", "static-cheapest", "--objective", "accuracy", "--json")
    right, wrong = (
        simulate(shell, paths, *options, *more).json()
        for more in ((), ("--latency-error", "2:2", "--latency-noise", "0.01"))
    )

    assert wrong["busy_ratio"] == pytest.approx(2 * right["busy_ratio"], rel=0.05)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_instant_is_a_cache_that_admits_all(
    rule: str, shell: Shell, paths: dict[str, Path]
) -> None:
    report = simulate(
        shell, paths, "--instant", "--eviction", rule, "--objective", "accuracy", "--json"
    ).json()

    assert report["in_time"] == report["requests"]
    assert report["loads"] >= 1


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--policy", "x"), f"there is no policy 'x'; there are: {', '.join(POLICIES)}, all"),
        (("--eviction", "x"), f"there is no eviction rule 'x'; there are: {', '.join(RULES)}"),
        (("--tick-s", "0"), "--tick-s 0 is not possible; at least 0.001 s is needed"),
        (("--tick-s", "nan"), "--tick-s nan is not possible; at least 0.001 s is needed"),
        (("--provision-s", "-1"), "--provision-s -1 is not possible; at least 0 s is needed"),
        (("--failures-every-s", "-inf"), "--failures-every-s -inf is not possible; at least "
         "0.001 s is needed"),
        (("--latency-error", "2"), "--latency-error '2' is not of the form LOW:HIGH, as 0.7:1.5"),
        (("--latency-error", "1.5:0.7"), "--latency-error 1.5:0.7 is not possible; two factors "
         "above 0, the lower first"),
        (("--latency-noise", "nan"), "--latency-noise nan is not from 0 to 2"),
        (("--plot", "x.pdf"), "--plot x.pdf: the name must end in .html, .png or .svg"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_an_option_that_cannot_be_is_one_sentence(
    options: tuple[str, ...], why: str, shell: Shell, paths: dict[str, Path]
) -> None:
    assert simulate(shell, paths, *options) == Ended(2, "", f"error: {why}\n")


def test_a_peak_that_was_declared_is_met(shell: Shell, tmp_path: Path) -> None:
    """Fifteen minutes of 20 queries per second, and then twenty times as many at once."""
    head = RATES.split("\n", maxsplit=1)[0] + "\n"
    rates = [20 if second < 900 else 400 for second in range(960)]
    trace = head + "".join(f"{s},digits,{rate},100,\n" for s, rate in enumerate(rates))
    catalog = (
        "task,model,variant,accuracy,device_kind,batch_size,latency_ms,memory_mib,load_s\n"
        "digits,cnn,cnn-fp32,0.98,cpu-4,1,20,100,0.5\n"
    )
    devices = "device_kind,count,memory_mib,usd_per_hour\ncpu-4,10,1000,0.1\n"
    peaks = "task,factor,qps,start_s,end_s,every_s\ndigits,20,,900,960,\n"
    files = write_all(tmp_path, catalog=catalog, devices=devices, trace=trace, peaks=peaks)

    unknown = simulate(shell, files, "--json").json()
    declared = simulate(shell, files, "--json", "--peaks", str(files["peaks"])).json()

    assert declared["violation_ratio"] < unknown["violation_ratio"] / 4
