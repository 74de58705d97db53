"""``modelless plan solve``: what it prints for a demand."""

import re
from pathlib import Path

import pytest
import yaml

from controlplane.files.catalog import read_catalog, read_devices
from controlplane.files.demand import read_demand
from planner.solver.check import violations
from planner.solver.problem import Assignment, Problem, Solution
from tests.controlplane.cli.shell import Ended, Shell
from tests.controlplane.files.builders import DEMAND, write_all

KEYS = [
    "feasible", "objective", "bound", "gap", "solve_ms", "timed_out", "workers", "placements",
    "served_qps", "accuracy", "usd_per_hour",
]  # fmt: skip
PLACED = [
    "worker", "device_kind", "task", "variant", "batch_size", "share", "qps", "latency_slo_ms",
]  # fmt: skip
TOO_MUCH = DEMAND + "digits,1e6,100,\n"

ONE = "task,model,variant,accuracy,device_kind,batch_size,latency_ms,memory_mib,load_s\n"
WISHES = """\
task,qps,latency_slo_ms,min_accuracy
digits,1000,100,
digits,2,100,0.95
digits,3,3,
digits,4,100,0.99
"""


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, Path]:
    return write_all(tmp_path)


def solve(shell: Shell, paths: dict[str, Path], *options: str) -> Ended:
    names = ("catalog", "devices", "demand")
    files = [text for name in names for text in (f"--{name}", str(paths[name]))]
    return shell("plan", "solve", *files, *options)


def test_json_has_the_documented_fields_and_no_other(shell: Shell, paths: dict[str, Path]) -> None:
    ended = solve(shell, paths, "--json")

    plan = ended.json()
    assert (ended.code, ended.err) == (0, "")
    assert list(plan) == KEYS
    assert [list(one) for one in plan["placements"]] == [PLACED] * len(plan["placements"])


def test_interference_of_the_devices_file_is_planned_with(
    shell: Shell, paths: dict[str, Path]
) -> None:
    """Beside each other both variants would take 0.87 of a device; the larger alone takes 0.6."""
    text = (
        "device_kind,count,memory_mib,usd_per_hour,interference\ncpu-4,4,1000,0.1,1.9\ngpu,0,,1,\n"
    )
    paths["devices"].write_text(text)

    plan = solve(shell, paths, "--json").json()

    assert (plan["feasible"], plan["workers"]["cpu-4"]) == (True, 1)
    assert {one["variant"] for one in plan["placements"]} == {"cnn-fp32"}


def test_the_cheapest_plan_is_one_small_device(shell: Shell, paths: dict[str, Path]) -> None:
    """Serving 100/s with mlp-int8 and 20/s with cnn-fp32 fits one cpu-4 at 0.1 USD per hour."""
    plan = solve(shell, paths, "--json").json()

    assert plan["feasible"]
    assert plan["workers"] == {"cpu-4": 1, "gpu": 0}
    assert (plan["objective"], plan["usd_per_hour"]) == (pytest.approx(0.1), pytest.approx(0.1))
    assert plan["gap"] == pytest.approx(0.0, abs=1e-6)
    assert plan["served_qps"] == pytest.approx(120.0)


def with_energy(paths: dict[str, Path]) -> None:
    """On the GPU, mlp-int8 takes a tenth of the joules, and the GPU a tenth of the idle draw."""
    joules = ("energy_j", "2", "8", "1", "0.1", "0.4")
    lines = zip(paths["catalog"].read_text().splitlines(), joules, strict=True)
    paths["catalog"].write_text("".join(f"{line},{each}\n" for line, each in lines))
    header = "device_kind,count,memory_mib,usd_per_hour,idle_w,carbon_g_per_kwh"
    day = " ".join(["100"] * 12 + ["300"] * 12)
    paths["devices"].write_text(f"{header}\ncpu-4,4,1000,0.1,50,{day}\ngpu,2,,0.5,5,200\n")


def test_the_plan_of_least_energy_says_what_it_draws(shell: Shell, paths: dict[str, Path]) -> None:
    with_energy(paths)

    plan = solve(shell, paths, "--objective", "energy", "--json").json()
    noon = solve(shell, paths, "--objective", "energy", "--hour", "12", "--json").json()

    assert list(plan) == [*KEYS, "watts", "idle_watts", "carbon_g_per_hour", "unmeasured_qps"]
    assert plan["workers"] == {"cpu-4": 1, "gpu": 1}
    assert plan["idle_watts"] == 55.0
    assert plan["objective"] == plan["carbon_g_per_hour"]
    # At 200 g for a kWh on the mean of the day, at 300 g on the CPUs at noon.
    assert plan["objective"] == pytest.approx(plan["watts"] * 0.2)
    assert noon["objective"] > plan["objective"]
    assert plan["unmeasured_qps"] == 0.0


def test_the_plan_of_least_energy_for_people(shell: Shell, paths: dict[str, Path]) -> None:
    with_energy(paths)
    shown = solve(shell, paths, "--objective", "energy").out

    assert "g of CO2 per hour" in shown
    assert "of it idle" in shown


def test_without_any_energy_there_is_no_plan_of_the_least(
    shell: Shell, paths: dict[str, Path]
) -> None:
    ended = solve(shell, paths, "--objective", "energy")

    assert ended.code == 2
    assert "no variant has an energy_j" in ended.err


def test_the_most_accurate_plan_takes_the_accurate_variant_only(
    shell: Shell, paths: dict[str, Path]
) -> None:
    plan = solve(shell, paths, "--objective", "accuracy", "--json").json()

    assert (plan["objective"], plan["accuracy"]) == (pytest.approx(0.98), pytest.approx(0.98))
    assert {one["variant"] for one in plan["placements"]} == {"cnn-fp32"}


@pytest.mark.parametrize("objective", ["cost", "accuracy"])
@pytest.mark.parametrize("greedy", [[], ["--greedy"]], ids=["exact", "greedy"])
@pytest.mark.parametrize("demand", [DEMAND, TOO_MUCH], ids=["feasible", "too much"])
def test_what_is_printed_keeps_the_planning_model(
    objective: str, greedy: list[str], demand: str, shell: Shell, tmp_path: Path
) -> None:
    """The plan is put together again from what is printed, and checked against the files."""
    paths = write_all(tmp_path, demand=demand)
    plan = solve(shell, paths, "--objective", objective, *greedy, "--json").json()
    kinds = read_devices(paths["devices"])
    offers = read_catalog(paths["catalog"], kinds)
    asked = read_demand(paths["demand"], ["digits"])

    workers = list(dict.fromkeys(one["worker"] for one in plan["placements"]))
    of = {one["worker"]: one["device_kind"] for one in plan["placements"]}
    offered = {(o.task, o.variant, o.device_kind): i for i, o in enumerate(offers)}
    slos = {one.latency_ms: index for index, one in enumerate(asked[:2])}
    solution = Solution(
        devices=tuple(of[worker] for worker in workers),
        assignments=tuple(
            Assignment(
                device=workers.index(one["worker"]),
                demand=2
                if demand is TOO_MUCH and one["qps"] > 120
                else slos[one["latency_slo_ms"]],
                offer=offered[one["task"], one["variant"], one["device_kind"]],
                batch_size=one["batch_size"],
                qps=one["qps"],
                share=one["share"],
            )
            for one in plan["placements"]
        ),
        served_qps=plan["served_qps"],
        accuracy=plan["accuracy"],
        usd_per_hour=plan["usd_per_hour"],
        feasible=plan["feasible"],
        objective=plan["objective"],
        bound=plan["bound"],
    )

    problem = Problem(offers=offers, kinds=kinds, demand=asked)
    assert plan["feasible"] is (demand is DEMAND)
    assert list(violations(problem, solution)) == []


def test_a_demand_that_is_too_much_is_no_error(shell: Shell, tmp_path: Path) -> None:
    ended = solve(shell, write_all(tmp_path, demand=TOO_MUCH))

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("feasible   no, ")


def test_people_read_what_is_not_served_and_why(shell: Shell, tmp_path: Path) -> None:
    """Nothing is above 0.99; the fastest answer of the least accurate takes 2 x 1 + 2 ms."""
    paths = write_all(
        tmp_path,
        catalog=ONE + "digits,m,fast,0.9,gpu,1,1,100,\ndigits,m,large,0.95,gpu,1,1,9000,\n",
        devices="device_kind,count,memory_mib,usd_per_hour\ngpu,1,1000,1\n",
        demand=WISHES,
    )

    said = solve(shell, paths).out

    listed, _, beside = said[said.index("NOT SERVED") :].partition("\n\n")
    rows = listed.splitlines()[1:]
    assert "2 ms for the way" in beside
    assert [re.split(r"\s{2,}", row.strip()) for row in rows] == [
        ["digits", "100", "-", "200", "1,000", "the devices are full"],
        ["digits", "100", "99.00 %", "4", "4", "the most accurate variant has 95.00 %"],
        [
            "digits",
            "3",
            "-",
            "3",
            "3",
            "no variant answers within less than 4.00 ms",
        ],
        ["digits", "100", "95.00 %", "2", "2", "what answers in time fits in no device's memory"],
    ]


def test_a_share_that_is_not_all_is_not_shown_as_all(shell: Shell, tmp_path: Path) -> None:
    paths = write_all(
        tmp_path,
        catalog=ONE + "digits,m,fast,0.9,gpu,1,1,100,\n",
        devices="device_kind,count,memory_mib,usd_per_hour\ngpu,1,1000,1\n",
        demand="task,qps,latency_slo_ms,min_accuracy\ndigits,800.001,100,\n",
    )

    assert "no, 800 of 800 queries/s are served (99.99 %)" in solve(shell, paths).out


def test_where_a_plan_takes_nearly_none_of_a_worker_that_is_no_row_of_zeros(
    shell: Shell, tmp_path: Path
) -> None:
    demand = "task,qps,latency_slo_ms,min_accuracy\ndigits,0.001,2000,\n"
    paths = write_all(tmp_path, catalog=ONE + "digits,m,fast,0.9,cpu-4,1,1,100,\n", demand=demand)

    row = solve(shell, paths).out.splitlines()[-1]

    expected = ["digits", "fast", "1", "2,000", "1", "< 0.01 %", "0.001"]
    assert [one for one in re.split(r"\s{2,}", row.strip()) if one != "cpu-4"] == expected


def test_people_read_what_it_costs_and_who_does_what(shell: Shell, paths: dict[str, Path]) -> None:
    said = solve(shell, paths).out

    assert "yes, all 120 queries/s are served" in said
    assert "0.10 USD per hour, proven best" in said
    assert [line.split()[:3] for line in said.splitlines() if line.startswith("cpu-4")] == [
        ["cpu-4", "1", "4"]
    ]
    assert "cnn-fp32" in said


def test_yaml_says_the_same_as_json(shell: Shell, paths: dict[str, Path]) -> None:
    as_yaml = yaml.safe_load(solve(shell, paths, "-o", "yaml").out)
    as_json = solve(shell, paths, "-o", "json").json()

    assert as_yaml | {"solve_ms": 0} == as_json | {"solve_ms": 0}


@pytest.mark.parametrize("limit", ["-1", "nan", "inf"])
def test_a_time_limit_that_is_none_is_refused(
    limit: str, shell: Shell, paths: dict[str, Path]
) -> None:
    ended = solve(shell, paths, "--time-limit-s", limit)

    assert ended.code == 2
    assert ended.err == f"error: --time-limit-s {limit} is no time; 0 or more is needed\n"


LAYOUT_CATALOG = """\
task,model,variant,accuracy,device_kind,batch_size,latency_ms,memory_mib,load_s
large,l,l-fp32,0.9,cpu-1,1,160,,
large,l,l-fp32,0.9,cpu-4,1,40,,
small,s,s-fp32,0.9,cpu-1,1,10,,
small,s,s-fp32,0.9,cpu-4,1,10,,
"""
LAYOUT_DEVICES = """\
device_kind,count,memory_mib,usd_per_hour
cpu-1,1,,0.1
cpu-4,1,,0.4
"""
LAYOUT_DEMAND = """\
task,qps,latency_slo_ms,min_accuracy
large,5,100,
small,280,100,
"""


def test_machines_are_split_by_the_demand(shell: Shell, tmp_path: Path) -> None:
    paths = write_all(
        tmp_path, catalog=LAYOUT_CATALOG, devices=LAYOUT_DEVICES, demand=LAYOUT_DEMAND
    )
    layouts = ["--layouts", "1xcpu-4|4xcpu-1", "--json"]

    two = solve(shell, paths, *layouts, "--machines", "2").json()
    assert list(two) == [*KEYS, "split"]
    assert two["feasible"]
    assert sorted(two["split"], key=str) == [{"cpu-1": 4}, {"cpu-4": 1}]
    assert two["workers"]["cpu-4"] == 1

    one = solve(shell, paths, *layouts).json()
    assert not one["feasible"]
    assert one["split"] == [{"cpu-1": 4}]  # which serves most
    shown = solve(shell, paths, "--layouts", "1xcpu-4|4xcpu-1", "--machines", "2").out
    assert "1xcpu-4" in shown
    assert "4xcpu-1" in shown


@pytest.mark.parametrize(
    ("text", "why"), [("1xcpu-2|2xcpu-1", "no device kind cpu-2"), ("cpu", "how many cores")]
)
def test_layouts_that_cannot_be_are_refused(
    shell: Shell, tmp_path: Path, text: str, why: str
) -> None:
    paths = write_all(
        tmp_path, catalog=LAYOUT_CATALOG, devices=LAYOUT_DEVICES, demand=LAYOUT_DEMAND
    )
    ended = solve(shell, paths, "--layouts", text)
    assert ended.code == 2
    assert why in ended.err


@pytest.mark.parametrize(("qps", "said"), [(9_000, False), (11_000, True)])
def test_more_than_a_gateway_passes_is_told_of(
    shell: Shell, tmp_path: Path, qps: int, said: bool
) -> None:
    """One device would do for both; what the queries pass before it is not in the plan."""
    catalog = f"{ONE}digits,mlp,mlp,0.9,cpu-4,1000,10,1,\n"
    demand = f"task,qps,latency_slo_ms,min_accuracy\ndigits,{qps},100,\n"
    paths = write_all(tmp_path, catalog=catalog, demand=demand)
    ended = solve(shell, paths)
    assert "yes, all" in ended.out
    assert ("One gateway passes some 10,000" in ended.out) is said
    assert ended.err == ""
