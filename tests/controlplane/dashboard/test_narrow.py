"""The page on a phone, in a small window and on a wall: nothing is cut off without a sign of it."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.views.history import slot_of
from controlplane.views.service_status import slo_report
from tests.controlplane.builders import CPU, DIGITS, digest, variant
from tests.controlplane.dashboard.driven import Driven
from tests.controlplane.dashboard.served import Page
from variants.types import (
    Canary,
    Event,
    ModelName,
    ModelVersion,
    Registration,
    Rule,
    RuleKind,
    Stage,
    TaskName,
)

pytestmark = pytest.mark.slow

SAMPLE = {
    "met": 30, "missed": 4, "infeasible_answered": 0, "errors": {"OVERLOADED": 6},
    "latencies": [[1.0, 2.0, 34]], "accuracy": [30.6, 34],
}  # fmt: skip
LONG = "its rows were judged by clients too seldom to say whether it is right as often; " * 4
CUT_OFF = """
[...document.querySelectorAll('main table')].filter(table => {
  const box = table.closest('.scroll') || table.parentElement, style = getComputedStyle(box);
  const signed = style.backgroundAttachment.includes('scroll') && style.backgroundImage !== 'none';
  return table.scrollWidth > box.clientWidth + 1 && !signed;
}).map(table => table.closest('[id]').id)
"""
SCROLLED = """
[...document.querySelectorAll('main .scroll')].filter(box => box.scrollWidth > box.clientWidth + 1)
  .map(box => box.id || box.closest('[id]').id)
"""


def fill(page: Page) -> None:
    """Something in each card."""
    page.plan(share=0.5)
    model = ModelName("mlp")
    page.catalog.set_stage([DIGITS.name], model, 1, Stage.CANARY)
    (canary,) = page.catalog.set_canary(
        Canary(task=DIGITS.name, model=model, version=1, share=0.05)
    )
    own = {"queries": 90_000, "late": 2, "failed": 1, "mean_ms": 2.5, "right": 3, "wrong": 1}
    page.live.judged_canaries = {
        canary.share_id: {
            "verdict": "not_yet", "why": LONG, "not_diverted": {},
            "canary": own | {"in_time": 87}, "live": own | {"in_time": 87},
        }
    }  # fmt: skip
    page.catalog.put_rule(Rule(kind=RuleKind.FREEZE, at_s=time.time(), why="sale"))
    page.live.client_rows = [
        {"name": "shop", "weight": 2.0, "asked": 91_234, "answered": 91_000, "refused": 234}
    ]

    @page.api.post("/v1/explain")
    async def explain() -> dict[str, object]:
        return {
            "answer": None,
            "refusal": {"code": "SLO_INFEASIBLE", "error": "none fits"},
            "plan": "The plan says nothing of such queries.",
            "variants": [
                {"variant": "linear-v1-onnx-fp32", "device_kind": "cpu-4", "verdict": "stopped",
                 "why": LONG, "accuracy": 0.9, "run_ms": 1.1, "price_usd_per_1k": 0.001,
                 "loaded_on": 1}
            ],
        }  # fmt: skip


@pytest.mark.parametrize(("width", "scrolled"), [(390, ["variants"]), (1300, [])])
def test_what_a_table_does_not_show_is_hinted_at(
    page: Page, tmp_path: Path, width: int, scrolled: list[str]
) -> None:
    fill(page)
    with Driven(tmp_path, width=width) as tab:
        tab.open(page.url + "#digits?accuracy=95")
        tab.wait_for("$('why').querySelector('td') && $('canaries').querySelector('td') && true")

        assert tab.value(CUT_OFF) == []
        assert tab.value(SCROLLED) == scrolled
        assert tab.value("document.documentElement.scrollWidth") == width


def test_the_row_of_the_chosen_task_is_no_wider_than_a_phone(page: Page, tmp_path: Path) -> None:
    one = replace(variant("m", accuracy=0.9), task=TaskName("price"))
    version = ModelVersion(
        task=one.task, model=one.model, version=1, stage=Stage.LIVE, source=digest("m"),
        created_at="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    page.catalog.register(
        Registration(
            task=replace(DIGITS, name=one.task), version=version, variants=(one,), profiles=(),
            device_kinds=(CPU,),
        )
    )  # fmt: skip
    with Driven(tmp_path, width=390) as tab:
        tab.open(page.url)
        tab.wait_for("$('queries').querySelector('tr.here') != null")

        assert "queries" not in tab.value(SCROLLED)


PLACES = """
Object.fromEntries(['queries-part', 'history-part', 'frontier-part', 'workers-part'].map(part => {
  const { left, top, width } = $(part).getBoundingClientRect();
  return [part, { left, top, width }];
}))
"""


def test_a_wall_has_side_by_side_what_belongs_together(page: Page, tmp_path: Path) -> None:
    page.live.samples = [
        {"slot": slot_of(time.time()) - back, "tasks": {"digits": SAMPLE}}
        for back in range(20, 1, -1)
    ]
    with Driven(tmp_path, width=2560) as tab:
        tab.open(page.url)
        tab.wait_for("$('history').querySelector('svg') != null")
        places = tab.value(PLACES)
        assert tab.value("document.documentElement.scrollWidth") == 2560
    for one, beside in (("queries-part", "history-part"), ("frontier-part", "workers-part")):
        assert places[one]["top"] == places[beside]["top"]
        assert places[one]["left"] + places[one]["width"] < places[beside]["left"]
        assert places[one]["width"] > 1_000


def test_numbers_of_tasks_stand_below_each_other_on_a_phone(page: Page, tmp_path: Path) -> None:
    with Driven(tmp_path, width=390) as tab:
        tab.open(page.url)
        tab.wait_for("$('queries').querySelector('td[data-label]') != null")
        lefts = tab.value(
            "[...$('queries').querySelectorAll('td[data-label]')]"
            ".filter(cell => cell.offsetWidth).map(cell => cell.getBoundingClientRect().left)"
        )
        assert tab.value("document.documentElement.scrollWidth") == 390
    assert 1 < len(set(lefts)) <= 4


@pytest.mark.parametrize("width", [761, 780, 901, 1180])
def test_numbers_of_tasks_stay_within_their_card(page: Page, tmp_path: Path, width: int) -> None:
    ended = {"met": 99_000, "missed": 1_800, "errors": {"OVERLOADED": 3_100, "SLO_INFEASIBLE": 40}}
    told = {"seconds": 60.0, "tasks": {"digits": ended}}
    page.live.slo = slo_report([{"counted_s": 7_200.0, "tasks": {"digits": ended}, "lately": told}])
    with Driven(tmp_path, width=width) as tab:
        tab.open(page.url)
        tab.wait_for("$('queries').querySelector('tbody td') != null")
        assert tab.value(
            "$('queries').querySelector('table').getBoundingClientRect().right"
            " <= $('queries').getBoundingClientRect().right + 1"
        )


def test_columns_of_canaries_are_apart(page: Page, tmp_path: Path) -> None:
    fill(page)
    with Driven(tmp_path) as tab:
        tab.open(page.url)
        tab.wait_for("$('canaries').querySelector('td') != null")
        gap = tab.value(
            "parseFloat(getComputedStyle($('canaries').querySelector('td')).paddingRight)"
        )

    assert gap >= 10


@pytest.mark.parametrize(("width", "above"), [(360, True), (1300, False)])
def test_words_of_an_event_have_the_width_of_a_phone(
    page: Page, tmp_path: Path, width: int, above: bool
) -> None:
    told = Event(at="2026-01-01T00:00:00+00:00", kind="scaled", subject="cpu-4", message=LONG)
    page.catalog.add_event(told)
    with Driven(tmp_path, width=width) as tab:
        tab.open(page.url)
        tab.wait_for("$('events').querySelector('li') != null")
        bottom = tab.value("$('events').querySelector('time').getBoundingClientRect().bottom")
        top = tab.value("$('events').querySelector('time + *').getBoundingClientRect().top")
        assert (top >= bottom - 1) is above


@pytest.mark.parametrize("width", [360, 1300])
def test_the_reference_of_the_api_is_read_without_scrolling_tables(
    page: Page, tmp_path: Path, width: int
) -> None:
    with Driven(tmp_path, width=width) as tab:
        tab.open(page.url + "docs")
        tab.wait_for("document.querySelector('details') != null")
        tab.value("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        tab.wait_for("[...document.querySelectorAll('details')].every(one => one.dataset.full)")

        assert tab.value(SCROLLED) == []
        assert tab.value("document.documentElement.scrollWidth") == width
        headers = "[...document.querySelectorAll('.reply h3')].map(one => one.textContent)"
        assert "Headers" in tab.value(headers)
