"""The page at ``/`` in a real browser, over the control API with a catalog in memory.

What is shown is decided in ``controlplane.views.fleet_status``, which has tests of its own.
"""

import re
from dataclasses import replace
from typing import Any

import pytest

from controlplane.cli.render import percent
from controlplane.views.service_status import slo_report
from tests.controlplane.builders import CPU, DIGITS, digest, register, worker
from tests.controlplane.dashboard.browser import show
from tests.controlplane.dashboard.served import FP32, INT8, Page
from tests.variants.catalog_builders import set_slo
from variants.types import (
    Canary,
    DeviceKind,
    DeviceKindName,
    LengthBucket,
    ModelName,
    ModelVersion,
    OpenAxis,
    Peak,
    Prefer,
    Registration,
    Rule,
    RuleKind,
    Slo,
    Stage,
    TaskName,
)

pytestmark = pytest.mark.slow

OTHER = DeviceKind(
    name=DeviceKindName("gpu-a"), cores=4, memory_mib=8_000.0, usd_per_hour=1.0, gpu="a"
)


def test_all_as_planned_is_green_and_says_as_of_when(page: Page) -> None:
    page.plan()
    shown = page.shown()
    assert "good" in shown["health.is"]
    assert shown["health"] == "as planned"
    assert "hidden" in shown["banner.is"]
    assert shown["worker-count"] == "1 of 1 running"
    assert "As planned: 1 worker is running, 1 of 1 replica loaded." in shown["plan"]
    assert "As of version 1, " in shown["plan"]
    assert "cpu-4 1 wanted · 1 running" in shown["workers"]


def test_what_queries_prefer_by_default_is_told_from_what_is_chosen(page: Page) -> None:
    said = "prefer cost (default) cost accuracy latency energy"
    assert said in page.shown()["needs"]


@pytest.mark.campaign
def test_what_holds_for_queries_that_name_nothing_stands_beside_the_signature(page: Page) -> None:
    set_slo(page.catalog, DIGITS.name, Slo(latency_ms=50.0, accuracy=0.9, prefer=Prefer.LATENCY))
    said = "by default 50 ms, accuracy 90.00 %, prefers latency"
    assert page.shown()["signature"].endswith(said)


def test_what_accuracy_means_stands_above_the_variants(page: Page) -> None:
    said = "accuracy by top1: share of the rows whose highest score is that of the right class"
    assert page.shown()["metric"] == said


@pytest.mark.campaign
def test_what_the_plan_gives_most_time_to_is_shown(page: Page) -> None:
    page.plan(share=0.25)
    assert "Variant Share of a full worker mlp-v1-onnx-int8 25.0 %" in page.shown()["plan"]


@pytest.mark.campaign
def test_what_the_plan_gives_hardly_any_time_is_counted(page: Page) -> None:
    page.plan(share=0.25, others=0.004)
    shown = page.shown()["plan"]
    assert re.search(r"25\.0 % What the columns mean .* 1 more placement with 0\.4 %", shown)


def test_without_a_worker_the_old_plan_is_not_told_as_if_it_held(page: Page) -> None:
    page.plan()
    page.live.statuses = []
    shown = page.shown()
    assert "bad" in shown["health.is"]
    assert "bad" in shown["banner.is"]
    assert "hidden" not in shown["banner.is"]
    assert shown["banner"].startswith("No worker is running, 1 worker cpu-4 wanted")
    assert "Not as things are now, but as of version 1, " in shown["plan"]
    assert "cpu-4 1 wanted · 0 running · 1 missing" in shown["workers"]


LATELY = {"OVERLOADED": 2, "SLO_INFEASIBLE": 4}


def busy() -> dict[str, Any]:
    """A thousand queries were answered as asked; of ten in the last minute only seven."""
    return slo_report(
        [
            {
                "tasks": {"digits": {"met": 1_007, "missed": 1, "errors": LATELY}},
                "lately": {
                    "seconds": 60.0,
                    "tasks": {"digits": {"met": 7, "missed": 1, "errors": LATELY}},
                },
            }
        ]
    )


@pytest.mark.campaign
def test_queries_that_miss_their_slo_are_told_though_all_runs_as_planned(page: Page) -> None:
    page.plan()
    page.live.slo = busy()
    shown = page.shown()
    assert "warn" in shown["health.is"]
    assert shown["health"] == "SLOs are missed"
    assert "warn" in shown["banner.is"]
    assert "hidden" not in shown["banner.is"]
    assert shown["banner"] == (
        "digits: 3 of 10 queries in the last 60 s missed their SLO: 1 late, 2 refused because the "
        "queues were too long (OVERLOADED)."
    )
    assert "As planned: 1 worker is running, 1 of 1 replica loaded." in shown["plan"]


def test_the_banner_tells_of_the_fleet_and_of_the_queries(page: Page) -> None:
    page.plan()
    page.live.statuses = []
    page.live.slo = busy()
    shown = page.shown()
    assert shown["health"] == "no worker is running"
    assert shown["banner"].startswith("No worker is running, 1 worker cpu-4 wanted")
    assert "digits: 3 of 10 queries" in shown["banner"]


@pytest.mark.campaign
def test_what_is_asked_lately_is_told_apart_from_all_since_the_start(page: Page) -> None:
    page.live.slo = busy()
    shown = page.shown()
    assert "hidden" not in shown["queries-part.is"]
    assert re.search(
        r"The last 60 s Since the gateways started "
        r"Task Variants Queries/s SLO met Late Refused Infeasible Queries SLO met in all"
        r" digits 4 [\d.,]+ 70\.00 % 1 2 4 1,0\d4 9\d\.\d\d %",
        shown["queries"],
    )


def test_clients_that_do_not_wait_are_told_beside_their_task(page: Page) -> None:
    told = {"met": 30, "missed": 0, "gave_up_ms": 2_000.0, "gave_up_of_ms": 10_000.0}
    for gone, shown in ((10, True), (1, False)):
        counted = {"digits": {**told, "errors": {"CLIENT_GONE": gone}}}
        lately = {"seconds": 10.0, "tasks": counted}
        page.live.slo = slo_report([{"tasks": counted, "lately": lately}])
        assert ("25.00 % of clients gave up" in page.shown()["queries"]) is shown


def test_what_is_asked_by_one_name_is_counted_by_it(page: Page) -> None:
    (spec,) = DIGITS.inputs
    for length in (4, 8):
        task = replace(
            DIGITS,
            name=TaskName(f"texts.{length}"),
            inputs=(replace(spec, shape=(length,)),),
            bucket=LengthBucket(
                of=TaskName("texts"), length=length, axes=(OpenAxis(input=spec.name, axis=0),)
            ),
        )
        version = ModelVersion(
            task=task.name, model=ModelName("m"), version=1, stage=Stage.LIVE, source=digest("m")
        )
        one = replace(
            page.catalog.snapshot().variants[0], task=task.name, model=version.model, name=INT8
        )
        page.catalog.register(
            Registration(task=task, version=version, variants=(one,), profiles=())
        )
    told = {
        "texts.4": {"met": 7, "missed": 1, "errors": {"OVERLOADED": 2, "SLO_INFEASIBLE": 4}},
        "texts.8": {"met": 30, "missed": 0, "errors": {}},
    }
    page.live.slo = slo_report([{"tasks": told, "lately": {"seconds": 10.0, "tasks": told}}])
    shown = page.shown()["queries"]
    assert "texts 2 4.4 92.50 % 1 2 4 44 92.50 %" in shown
    assert "texts.4 1 1.4 70.00 % 1 2 4 14 70.00 %" in shown


@pytest.mark.campaign
def test_what_answers_stands_first_and_the_task_that_is_asked_is_shown(page: Page) -> None:
    other = replace(DIGITS, name=TaskName("a-first"))
    version = ModelVersion(
        task=other.name, model=ModelName("m"), version=1, stage=Stage.LIVE, source=digest("m"),
        created_at="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    only = replace(
        page.catalog.snapshot().variants[0], task=other.name, model=version.model, name=INT8
    )
    page.catalog.register(Registration(task=other, version=version, variants=(only,), profiles=()))
    page.catalog.set_stage([DIGITS.name], ModelName("linear"), 1, Stage.RETIRED)
    page.live.slo = busy()
    variants = page.shown()["variants"]
    names = ("mlp-v1-onnx-int8", "mlp-v1-onnx-fp32", "slow-v1-onnx-fp32", "linear-v1-onnx-fp32")
    assert sorted(names, key=variants.index) == list(names)  # the last one is the fastest


@pytest.mark.campaign
def test_variants_of_several_tasks_are_told_apart_on_a_worker(page: Page) -> None:
    assert "digits/" not in page.shown()["workers"]
    status = worker("w1", INT8)
    other = replace(status.replicas[0], task=TaskName("other"))
    page.live.statuses = [replace(status, replicas=(*status.replicas, other))]
    shown = page.shown()["workers"]
    assert f"digits/{INT8} other/{INT8}" in shown


@pytest.mark.parametrize(
    ("met", "missed", "share"),
    [
        pytest.param(141, 19, "88.13 %", marks=pytest.mark.campaign),
        (99_999, 1, "99.99 %"),
        pytest.param(7, 0, "100.00 %", marks=pytest.mark.campaign),
    ],
)
def test_a_share_is_written_as_on_a_terminal(page: Page, met: int, missed: int, share: str) -> None:
    told = {"digits": {"met": met, "missed": missed, "errors": {}}}
    page.live.slo = slo_report([{"tasks": told, "lately": {"seconds": 60.0, "tasks": told}}])
    assert percent(met / (met + missed)) == share
    assert share in page.shown()["queries"]


@pytest.mark.campaign
def test_declared_peaks_stand_above_the_plan(page: Page) -> None:
    page.catalog.add_peak(Peak(start_s=0.0, end_s=100.0, factor=9.0, note="long gone"))
    page.catalog.add_peak(
        Peak(start_s=4e9, end_s=4.0001e9, task=DIGITS.name, qps=50.0, every_s=604_800.0)
    )
    page.catalog.add_peak(Peak(start_s=4e9, end_s=4.0002e9, factor=3.0, note="sale"))

    shown = page.shown()["plan"]

    assert "50 queries/s of digits, weekly" in shown
    assert "3 times the demand of all tasks (sale)" in shown
    assert "long gone" not in shown


def test_rules_of_operators_are_shown_and_mark_their_variants(page: Page) -> None:
    assert "Since" not in page.shown()["rules"]
    pin = Rule(kind=RuleKind.PIN, task=DIGITS.name, variant=INT8, replicas=2, at_s=4e9, by="ann")
    page.catalog.put_rule(replace(pin, why="release"))
    page.catalog.put_rule(replace(pin, kind=RuleKind.FORBID, variant=FP32, replicas=1))
    page.catalog.put_rule(Rule(kind=RuleKind.FREEZE, at_s=4e9, why="sale"))

    shown = page.shown()

    assert f"1 pin digits/{INT8} , 2 replicas" in shown["rules"]
    assert "ann release 1 of 2 replicas ready" in shown["rules"]
    assert f"2 forbid digits/{FP32}" in shown["rules"]
    assert "3 freeze the plan" in shown["rules"]
    assert f"{INT8} live pinned" in shown["variants"]
    assert f"{FP32} live forbidden" in shown["variants"]
    assert "The plan is frozen since" in shown["plan"]


def test_what_clients_say_of_a_variant_marks_it_where_it_is_not_what_was_measured(
    page: Page,
) -> None:
    page.live.told = {
        "contradicted": [["digits", INT8, 0.5, 40], ["digits", FP32, 0.625, 80]],
        "accuracies": [["digits", FP32, 0.625, 80]],
    }
    shown = page.shown()
    assert f"{INT8} live 50.00 % by feedback " in shown["variants"]
    assert f"{FP32} live 62.50 % counts " in shown["variants"]
    assert shown["notice"].startswith(
        "By what clients say, answers of digits are right less often than was measured: "
    )
    assert f"{INT8} 50.00 % of the time instead of 97.00 %" in shown["notice"]


def test_answers_that_are_divided_otherwise_are_told_of_as_no_error(page: Page) -> None:
    shift = {"classes": "3", "before": 0.1, "now": 0.3}
    told = {
        "task": "digits", "variant": INT8, "rows": 900, "first_rows": 2_100, "complete": True,
        "moved": 0.2, "changed": True, "shifts": [shift], "from_held_out": None, "differs": False,
        "differences": [],
    }  # fmt: skip
    page.live.told = {"answers": [told, told | {"variant": FP32, "changed": False}]}
    shown = page.shown()
    assert f"{INT8} live other answers " in shown["variants"]
    assert f"{FP32} live other answers" not in shown["variants"]
    assert shown["notice"].startswith(
        "Answers of digits are divided among the classes otherwise than at first: 20.00 % of those"
    )
    assert "That is no error" in shown["notice"]


def test_a_canary_stands_beside_the_live_versions(page: Page) -> None:
    assert "hidden" in page.shown()["canaries-part.is"]
    model = ModelName("mlp")
    page.catalog.set_stage([DIGITS.name], model, 1, Stage.CANARY)
    (canary,) = page.catalog.set_canary(
        Canary(task=DIGITS.name, model=model, version=1, share=0.05)
    )
    own = {"queries": 90, "late": 2, "failed": 1, "mean_ms": 2.5, "right": 3, "wrong": 1}
    live = own | {"queries": 1_900, "late": 0, "failed": 0, "right": 0, "wrong": 0}
    page.live.judged_canaries = {
        canary.share_id: {
            "verdict": "not_yet", "why": "90 of 1,000", "not_diverted": {},
            "canary": own | {"in_time": 87}, "live": live | {"in_time": 1_900},
        }
    }  # fmt: skip
    shown = page.shown()
    assert "hidden" not in shown["canaries-part.is"]
    assert "digits mlp-v1 5.00 % 90 2 1 2.50 75.00 % of 4" in shown["canaries"]
    assert "live versions 1,900 0 0 2.50 –" in shown["canaries"]
    assert "not yet 90 of 1,000" in shown["canaries"]


@pytest.mark.campaign
def test_scaled_to_zero_names_the_command_that_helps(page: Page) -> None:
    page.catalog.set_inventory(CPU.name, 0)
    page.live.statuses = []
    shown = page.shown()
    assert "bad" in shown["banner.is"]
    assert "modelless workers scale cpu-4 1 asks for one" in shown["banner"]
    assert "0 wanted · 0 running" in shown["workers"]


@pytest.mark.campaign
def test_latencies_are_of_the_kind_that_runs_here(page: Page) -> None:
    """More variants were measured on another kind, as after a move to another machine."""
    page.plan()
    page.measure(OTHER, 777.0)
    shown = page.shown()
    assert shown["variant-device"] == "p50 and p95 of one row on cpu-4"
    assert "777" not in shown["variants"]
    assert shown["device"] == "cpu-4 gpu-a · not running"


@pytest.mark.campaign
def test_several_kinds_that_run_are_told_apart(page: Page) -> None:
    page.measure(OTHER, 777.0)
    page.catalog.set_inventory(OTHER.name, 2)
    others = [replace(worker(name, INT8), device_kind=OTHER.name) for name in ("g1", "g2")]
    page.live.statuses = [*page.live.statuses, *others]
    shown = page.shown()
    assert shown["device"] == "gpu-a cpu-4"
    assert shown["variant-device"] == "p50 and p95 of one row on gpu-a"
    assert "777" in shown["variants"]
    assert "cpu-4 1 wanted · 1 running gpu-a 2 wanted · 2 running" in shown["workers"]


def test_the_dashboard_draws_each_variant_and_labels_those_that_none_beats(page: Page) -> None:
    page.plan()
    shown = show(page.url, page.folder, dark=True)
    chart = shown.body[shown.body.index("<svg") : shown.body.index("</svg>")]

    assert shown.console == []
    drawn = {
        name: tones
        for tones, name in re.findall(r'class="series dots ([^"]*)" data-name="([^"]*)"', chart)
    }
    assert drawn == {
        "linear-v1-onnx-fp32": "c0",
        "mlp-v1-onnx-int8": "c1",
        "mlp-v1-onnx-fp32": "c0",
        "slow-v1-onnx-fp32": "c0 faint",
    }
    assert set(re.findall(r'class="label"[^>]*>([^<]*)<', chart)) == {
        "linear-v1 fp32", "mlp-v1 int8", "mlp-v1 fp32",
    }  # fmt: skip
    legend = "fp32 int8 faint: another is as accurate, as fast and as small best accuracy up to a"
    assert legend in shown.text
    assert "as run_ms in replies" in shown.text


def test_what_is_out_of_service_does_not_stretch_the_diagram(page: Page) -> None:
    register(page.catalog, "random", (0.1, 1.0))
    page.catalog.set_stage([DIGITS.name], ModelName("random"), 1, Stage.RETIRED)
    shown = page.shown()["frontier"]
    assert "random-v1" not in shown
    assert "grey: not in service" not in shown


@pytest.mark.campaign
def test_what_is_out_of_service_is_grey_and_the_legend_says_so(page: Page) -> None:
    page.catalog.set_stage([DIGITS.name], ModelName("slow"), 1, Stage.RETIRED)
    shown = page.shown()
    assert "grey: not in service best accuracy" in shown["frontier"]
    assert shown["variant-count"] == "3 of 4 in service"


@pytest.mark.campaign
def test_of_many_variants_on_a_worker_their_number_is_shown_and_what_is_not_ready(
    page: Page,
) -> None:
    page.live.statuses = [worker("w1", *(f"v{i}" for i in range(20)), loading=("late",))]
    shown = page.shown()["workers"]
    assert "20 variants ready" in shown
    assert "of digits" not in shown  # there is no other task
    assert "late · loading" in shown


def test_the_api_reference_shows_every_route(page: Page) -> None:
    shown = show(page.url + "docs", page.folder)

    assert shown.console == []
    assert "All tasks" in shown.text
    assert "Promote or retire a version" in shown.text
