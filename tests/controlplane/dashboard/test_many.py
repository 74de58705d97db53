"""The page of a large installation: 200 tasks, 1,000 variants, 130 workers that come in parts."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.views.service_status import slo_report
from tests.controlplane.builders import CPU, DIGITS, digest, profile, variant, worker
from tests.controlplane.dashboard.driven import Driven
from tests.controlplane.dashboard.served import Page
from tests.controlplane.dashboard.test_narrow import CUT_OFF
from variants.types import (
    ModelVersion,
    Placement,
    Plan,
    Registration,
    Stage,
    TaskName,
    VariantName,
    WorkerId,
)
from workers.types import ReplicaStatus

pytestmark = pytest.mark.slow

TASKS, VARIANTS, WORKERS = 200, 5, 130
LATE = "task-150"
"""The only task that misses its SLO; it is asked for least."""
NAMES = "[...document.querySelectorAll('#queries tbody .pick')].map(one => one.textContent)"


def fill(page: Page) -> None:
    """Every worker holds five variants of each of five tasks."""
    names = [TaskName(f"task-{number:03d}") for number in range(TASKS)]
    for name in names:
        for number in range(VARIANTS):
            one = replace(variant(f"m{number}", accuracy=0.9 + 0.01 * number), task=name)
            version = ModelVersion(
                task=name, model=one.model, version=1, stage=Stage.LIVE,
                source=digest(one.model), created_at="2026-01-01T00:00:00+00:00",
            )  # fmt: skip
            page.catalog.register(
                Registration(
                    task=replace(DIGITS, name=name),
                    version=version,
                    variants=(one,),
                    profiles=(profile(one, p50_ms=1.0 + number, p95_ms=2.0 + number),),
                    device_kinds=(CPU,),
                )
            )
    held = [
        [(names[(number + step) % TASKS], VariantName(f"m{k}-v1-onnx-fp32"))
         for step in range(5) for k in range(VARIANTS)]
        for number in range(WORKERS)
    ]  # fmt: skip
    page.live.statuses = [
        replace(
            worker(f"cpu-4-{number:04d}", busy_ratio=number / WORKERS),
            replicas=tuple(
                ReplicaStatus(task=task, variant=one, state="ready", memory_mib=10.0)  # type: ignore[arg-type]
                for task, one in held[number]
            ),
        )
        for number in range(WORKERS)
    ]
    page.catalog.set_inventory(CPU.name, WORKERS)
    page.catalog.put_plan(
        Plan(
            version=0,
            epoch=page.catalog.acquire_leadership("test"),
            placements=tuple(
                Placement(
                    worker=WorkerId(f"cpu-4-{number:04d}"), task=task, variant=one, share=0.04
                )
                for number in range(WORKERS)
                for task, one in held[number]
            ),
            workers={CPU.name: WORKERS},
            explanation=("All is served.",),
        )
    )
    ended = {
        name: {"met": 100 + number, "missed": 0, "errors": {}} for number, name in enumerate(names)
    }
    ended[TaskName(LATE)] = {"met": 60, "missed": 30, "errors": {}}
    page.live.slo = slo_report(
        [{"counted_s": 7_200.0, "tasks": ended, "lately": {"seconds": 60.0, "tasks": ended}}]
    )


@pytest.fixture
def tab(page: Page, tmp_path: Path) -> Iterator[Driven]:
    page.catalog = page.context.catalog = type(page.catalog)()
    fill(page)
    with Driven(tmp_path) as tab:
        tab.open(page.url)
        tab.wait_for("document.querySelector('#events .empty, #events li') != null")
        yield tab


def sought(tab: Driven, part: str, words: str) -> None:
    tab.value(
        f"(field => {{ field.value = '{words}'; field.dispatchEvent(new Event('input')); }})"
        f"(document.querySelector('#{part} input[type=search]'))"
    )


def test_lists_of_a_large_installation_are_searched_sorted_and_paged(tab: Driven) -> None:
    names = tab.value(NAMES)
    assert (len(names), names[:3]) == (12, [LATE, "task-199", "task-198"])
    assert tab.value("document.querySelectorAll('#workers .worker').length") == 6
    busiest = tab.value("document.querySelector('#workers .worker code').textContent")
    assert busiest.startswith("cpu-4-012")
    assert tab.value("$('cause-task').textContent") == LATE
    assert tab.value("document.documentElement.scrollHeight") < 4_500
    assert tab.value(CUT_OFF) == []

    tab.value("document.querySelector('#queries .sort').click()")
    assert tab.value(NAMES)[:2] == ["task-000", "task-001"]
    tab.value("document.querySelector('#queries [aria-label^=\"next page\"]').click()")
    assert tab.value(NAMES)[0] == "task-012"
    assert "13–24 of 200" in tab.value("$('queries').textContent")

    sought(tab, "queries", "task-07")
    assert tab.value(NAMES) == [f"task-07{digit}" for digit in range(10)]
    sought(tab, "workers", "0042")
    assert tab.value("document.querySelectorAll('#workers .worker').length") == 1
    sought(tab, "workers", "nowhere")
    assert "None of them has these words." in tab.value("$('workers').textContent")


GLANCE = """
[...document.querySelectorAll('#glance dl > div')].map(one => [one.className, ...one.children]
  .map(part => (part.textContent ?? part).replaceAll("\\u00a0", " ").trim()).join('|'))
"""


def test_what_is_read_first_says_of_all_tasks_how_it_is_and_what_it_costs(tab: Driven) -> None:
    assert tab.value(GLANCE) == [
        "warn|SLO met|99.92 %|30 late",
        "|Queries|662 /s|200 of 200 tasks asked",
        "|Workers|130 of 130|50 % busy, at most 99 %",
        "|Headroom|–|not known yet",
        "|Cost|468.00 USD/h|196.28 USD per million",
    ]
    assert tab.value("document.title") == "SLOs are missed · modelless"
    rooms = (
        "[{factor: 0.62, sentence: ''}, {factor: 1.84, sentence: ''}, {factor: 10, sentence: ''}]"
    )
    said = "({figure, unit, note, colour}) => [figure, unit, note, colour ?? ''].join('|')"
    assert tab.value(f"{rooms}.map(one => glanceOfRoom(one)).map({said})") == [
        "62|%|of what is asked can be served|warn",
        "1.8|×|what is asked now|",
        "≥ 10|×|what is asked now|",
    ]
    assert tab.value(
        f"[glanceOfWorkers([], [{{running: 0, wanted: 2, missing: 2}}])].map({said})"
    ) == ["0|of 2|none is running|bad"]
    assert tab.value(f"[glanceOfCost([{{device_kind: 'a'}}], [], 1)].map({said})") == [
        "–||no price is known|"
    ]


def test_what_was_typed_and_has_the_focus_stays_while_the_page_lives(
    page: Page, tab: Driven
) -> None:
    sought(tab, "queries", "task-07")
    before = tab.value(NAMES)
    tab.value("document.querySelectorAll('#queries .pick')[3].focus()")
    page.live.statuses = page.live.statuses[:50]
    page.live.slo["tasks"][73]["lately"]["requests"] += 600
    tab.wait_for("$('worker-count').textContent.startsWith('50 of 130')")

    assert tab.value(NAMES) == before
    assert tab.value("document.activeElement.textContent") == before[3]
    tab.value("document.activeElement.click()")
    tab.wait_for(f"$('signature').textContent.startsWith('{before[3]} · ')")
    assert tab.value("location.hash") == f"#{before[3]}"
    assert tab.value("document.activeElement.textContent") == before[3]


def test_an_open_page_asks_little(tab: Driven) -> None:
    """Counted, not timed: which requests, how often, and how many bytes of them a second."""
    begun = time.monotonic()
    tab.value("performance.clearResourceTimings()")
    tab.wait_for("performance.getEntriesByType('resource').filter("
                 "one => one.name.includes('/v1/workers')).length >= 4")  # fmt: skip
    found = tab.value(
        "performance.getEntriesByType('resource').map("
        "one => [new URL(one.name).pathname + new URL(one.name).search, one.encodedBodySize])"
    )
    seconds = time.monotonic() - begun
    paths = [path for path, _ in found]

    assert f"/v1/plan?task={LATE}" in paths
    assert all("after=" in path or path.endswith("limit=200") for path in paths if "events" in path)
    assert max(size for path, size in found if "plan" in path) < 20_000
    assert sum(size for _, size in found) < 150_000 * seconds


def test_what_becomes_of_many_variants_is_shown_a_page_at_a_time(tab: Driven) -> None:
    """Of 200 variants the page was 69,000 pixels high on a phone; long names hid the numbers."""
    tab.value("""
        explained = chosen;
        put("why", ...explanation({
          answer: null, refusal: {code: "COLD", error: "not loaded"}, plan: "",
          variants: [...Array(60)].map((_, i) => ({
            variant: "a-name-as-long-as-those-of-models-that-others-have-trained-" + i + "-fp32",
            device_kind: "cpu-1", why: "fits", verdict: "fits", accuracy: 0.9, run_ms: 1,
            price_usd_per_1k: 1e-6, loaded_on: 1}))}));
        document.getElementById("why-part").hidden = false""")
    assert tab.value("document.querySelectorAll('#why tbody tr').length") == 25
    table = "document.querySelector('#why .scroll')"
    assert tab.value(f"{table}.scrollWidth <= {table}.clientWidth")
    sought(tab, "why", "trained-59-")
    assert tab.value("document.querySelectorAll('#why tbody tr').length") == 1
