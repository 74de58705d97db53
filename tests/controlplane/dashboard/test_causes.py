"""From “this task misses its SLO” to why, on the page."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controlplane.views.service_status import slo_report
from tests.controlplane.builders import CPU, worker
from tests.controlplane.dashboard.driven import Driven
from tests.controlplane.dashboard.served import FP32, INT8, Page
from variants.core_time import CoreTime
from variants.types import Event, Plan, Rule, RuleKind

pytestmark = pytest.mark.slow

TEXT = "$('cause').innerText.replace(/\\s+/g, ' ')"


def missed(late: int, refused: int) -> dict[str, Any]:
    ended = {"met": 100, "missed": late, "errors": {"OVERLOADED": refused}}
    return slo_report(
        [{"tasks": {"digits": ended}, "lately": {"seconds": 60.0, "tasks": {"digits": ended}}}]
    )


@pytest.fixture
def tab(page: Page, tmp_path: Path) -> Iterator[Driven]:
    page.plan(share=0.5, others=0.25)
    page.live.slo = missed(late=30, refused=70)
    with Driven(tmp_path) as tab:
        yield tab


def opened(tab: Driven, page: Page) -> str:
    tab.open(page.url)
    tab.wait_for("$('cause').innerText !== ''")
    text: str = tab.value(TEXT)
    return text


def test_a_full_worker_is_named_and_so_is_what_the_plan_wants_and_is_not_there(
    page: Page, tab: Driven
) -> None:
    page.live.statuses = [worker("w1", INT8, busy_ratio=0.97)]

    shown = opened(tab, page)

    assert "The worker that serves it is busy for at least 90 % of the time" in shown
    assert f"Planned, and not there: {FP32} on w1." in shown
    assert f"{INT8} w1 ready 50.0 % 0 – 5.00 97 %" in shown
    assert f"{FP32} w1 missing 25.0 % 0 – – –" in shown
    assert tab.errors == []


def test_what_runs_slower_than_measured_and_what_happened_is_told(page: Page, tab: Driven) -> None:
    status = worker("w1", INT8, FP32)
    slow = replace(status.replicas[0], batches=9, latency=((1, 20.0, 40.0),))
    page.live.statuses = [replace(status, replicas=(slow, status.replicas[1]))]
    for kind, subject in (
        ("loaded", f"digits/{INT8} on w1"), ("loaded", "other/x on w2"), ("planned", "version 1"),
    ):  # fmt: skip
        page.catalog.add_event(
            Event(at="2099-01-01T00:00:00+00:00", kind=kind, subject=subject, message="")
        )
    page.catalog.put_rule(Rule(kind=RuleKind.FREEZE, at_s=4e9, why="sale"))

    shown = opened(tab, page)

    assert f"{INT8} on w1 takes 40.0 ms where its profile says 5.00 ms" in shown
    assert "The plan is frozen since" in shown
    assert f"loaded digits/{INT8} on w1" in shown
    assert "planned version 1" in shown
    assert "other/x" not in shown


def test_where_nothing_stands_out_the_page_says_so(page: Page, tab: Driven) -> None:
    page.live.statuses = [worker("w1", INT8, FP32)]

    assert "Nothing of the fleet stands out" in opened(tab, page)

    page.live.slo = missed(late=0, refused=0)
    tab.wait_for("$('cause-part').hidden")


def test_where_no_worker_has_a_variant_and_none_is_planned_it_is_said(
    page: Page, tab: Driven
) -> None:
    page.catalog.put_plan(
        Plan(
            version=0,
            epoch=page.catalog.acquire_leadership("test"),
            placements=(),
            workers={CPU.name: 1},
        )
    )
    page.live.statuses = [worker("w1")]

    shown = opened(tab, page)

    assert "No worker has a variant of it, and the plan wants none: a query has one loaded" in shown
    assert "Nothing of the fleet stands out" not in shown


def test_a_lost_worker_and_a_plan_without_room_are_told(page: Page, tab: Driven) -> None:
    page.live.statuses = [worker("w1", INT8, FP32)]
    demand = "The demand of 47 rows per second was divided anew: 67.6 % of it can be served."
    loads = [("loaded", f"digits/v{number} on w1", "in the plan") for number in range(9)]
    for kind, subject, message in (
        ("worker_lost", "w7", "it ended"), ("planned", "version 2", demand), *loads,
    ):  # fmt: skip
        page.catalog.add_event(
            Event(at="2099-01-01T00:00:00+00:00", kind=kind, subject=subject, message=message)
        )

    shown = opened(tab, page)

    assert "A worker was lost since then: w7." in shown
    assert "The plan serves 67.6 % of the demand: there is no room for more." in shown
    assert "Nothing of the fleet stands out" not in shown
    assert "loaded 9 times" in shown
    assert "worker lost w7: it ended" in shown


def test_the_banner_leads_to_the_task(page: Page, tab: Driven) -> None:
    page.live.statuses = [worker("w1", INT8, FP32)]
    opened(tab, page)

    assert tab.value("document.querySelector('#banner a').getAttribute('href')") == "#digits"
    tab.value("document.body.style.paddingBottom = '2000px'; scrollTo(0, 0); 0")
    tab.value("document.querySelector('#banner a').click(); 0")
    tab.wait_for("Math.abs($('cause-part').getBoundingClientRect().top) < 20")


def test_that_slos_are_met_is_said_where_something_was_asked(page: Page, tab: Driven) -> None:
    page.live.slo = missed(late=0, refused=0)
    page.live.statuses = [worker("w1", INT8, FP32)]
    tab.open(page.url)

    tab.wait_for("$('health').textContent === 'as planned, SLOs are met'")
    assert tab.value("$('health').className") == "good"


def test_a_frozen_plan_is_told_above_all_though_all_is_as_planned(page: Page, tab: Driven) -> None:
    page.live.slo = missed(late=0, refused=0)
    page.live.statuses = [worker("w1", INT8, FP32)]
    page.catalog.put_rule(Rule(kind=RuleKind.FREEZE, at_s=1.8e9, by="ann", why="sale"))
    tab.open(page.url)
    tab.wait_for("$('health').textContent === 'as planned, SLOs are met, plan frozen'")

    notice = tab.value("$('notice').innerText")
    assert notice.startswith("The plan is frozen since ")
    assert "15 Jan 08:00:00 UTC" in notice  # as all times of the page


def test_a_page_of_nothing_says_how_to_begin(page: Page, tab: Driven) -> None:
    page.catalog = page.context.catalog = type(page.catalog)()
    page.live.statuses = [worker("w1")]
    page.live.slo = slo_report([])
    page.catalog.set_inventory(CPU.name, 1)
    tab.open(page.url)
    tab.wait_for("$('health').textContent === 'nothing is registered yet'")

    shown = tab.value("document.body.innerText")
    assert "modelless register" in shown
    assert "modelless up --example digits" in shown
    assert "No variant of this task" not in shown
    assert tab.value("$('banner').hidden")
    assert tab.errors == []


def test_cores_that_others_take_are_a_reason(page: Page, tab: Driven) -> None:
    page.live.statuses = [worker("w1", INT8)]
    page.live.core_readings = [CoreTime(host="h1", cores=2, used=0.4, busy=2.0, waited=0.63)]

    shown = opened(tab, page)

    assert "The cores of h1 are short: 63 % of the time something waited for one" in shown
    assert "Nothing of the fleet stands out" not in shown
    assert "The cores of h1 are short" in tab.value("$('banner').innerText")
    assert tab.errors == []
