"""The page while it lives: every two seconds it asks again, and what it is told changes or ends."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi import Request, Response
from fastapi.responses import JSONResponse

from controlplane.views.service_status import slo_report
from tests.controlplane.builders import CPU, DIGITS, digest, variant, worker
from tests.controlplane.dashboard.driven import Driven
from tests.controlplane.dashboard.served import INT8, Page
from variants.errors import StateUnavailable
from variants.types import ModelVersion, Registration, Stage, TaskName

pytestmark = pytest.mark.slow

FRONTIER = "document.querySelector('#frontier svg')"


@pytest.fixture
def tab(page: Page, tmp_path: Path) -> Iterator[Driven]:
    """The page of one worker, open in a browser."""
    page.plan()
    with Driven(tmp_path) as tab:
        tab.open(page.url)
        tab.wait_for(f"{FRONTIER} != null")
        yield tab


def test_a_diagram_whose_points_move_is_drawn_again_without_an_error(
    page: Page, tab: Driven
) -> None:
    for p95_ms, written in ((7.0, "7.00"), (3.0, "3.00"), (11.0, "11.0")):
        page.measure(CPU, p95_ms)
        tab.wait_for(f"$('variants').textContent.includes('{written}')")
        # What a resize observer still has to tell comes with the next frames.
        tab.value("new Promise(done => setTimeout(done, 300))")

    assert tab.errors == []
    assert tab.value("document.querySelectorAll('#frontier svg').length") == 1


def test_what_the_pointer_reads_of_a_diagram_stays_while_its_points_stay(
    page: Page, tab: Driven
) -> None:
    tab.value(f"window.drawn = {FRONTIER}; 0")
    middle = "(r => [r.x + r.width / 2, r.y + r.height / 2])"
    dot = f"{middle}(document.querySelector('#frontier circle').getBoundingClientRect())"
    tab.point(*tab.value(dot))
    tab.wait_for("readout.node?.style.visibility === 'visible'")

    status = worker("w1", INT8)
    ran = replace(status.replicas[0], batches=9, latency=((1, 4.44, 4.55),))
    page.live.statuses = [replace(status, busy_ratio=0.9, replicas=(ran,))]
    tab.wait_for("$('variants').textContent.includes('4.44')")

    assert tab.value(f"window.drawn === {FRONTIER}")
    assert tab.value("readout.node.style.visibility") == "visible"


def test_that_other_answers_are_normal_is_said_by_a_button_that_asks_twice(
    page: Page, tab: Driven
) -> None:
    told = {
        "task": "digits", "variant": INT8, "rows": 900, "first_rows": 2_100, "complete": True,
        "moved": 0.2, "changed": True, "since_s": 5.0, "shifts": [], "from_held_out": None,
        "differs": False, "differences": [],
    }  # fmt: skip
    button = "document.querySelector('#notice button[data-key^=accept]')"
    page.live.told = {"answers": [told]}
    tab.wait_for(f"{button}?.textContent === 'This is normal now'")
    tab.value(f"{button}.focus(), {button}.click()")
    page.live.told = {"answers": [told | {"moved": 0.3}]}
    tab.wait_for("$('notice').textContent.includes('30.00')")
    assert page.catalog.accepted_answers() == ()
    # What stands beside it is written anew, and it is the same as it was.
    assert tab.value(f"{button}.textContent") == "Yes, learn anew what is normal"
    assert tab.value(f"document.activeElement === {button}")
    tab.value(f"{button}.click()")
    tab.wait_for("$('notice').textContent.includes('What is normal is learned anew')")
    (word,) = page.catalog.accepted_answers()
    assert (word.variant, word.since_s, word.by) == (INT8, 5.0, "the page")
    page.live.told = {}
    tab.wait_for("$('notice').hidden")
    assert tab.errors == []


def test_while_the_gateway_is_away_nothing_is_told_as_if_it_held(page: Page, tab: Driven) -> None:
    frame = "getComputedStyle($('plan').closest('section')).borderTopStyle"
    shade = "getComputedStyle($('plan').closest('section')).opacity"
    page.live.statuses = []
    tab.wait_for("$('banner').textContent.startsWith('No worker is running')")

    with page.away():
        tab.wait_for("/^no answer since [0-9:]{8} UTC$/.test($('health').textContent)")
        told = tab.value("$('banner').textContent")
        stale = tab.value(frame), tab.value(shade)
    page.live.statuses = [worker("w1", INT8)]
    tab.wait_for("$('health').textContent === 'as planned'")

    since = told.removeprefix("The gateway gives no answer since ")[:12]
    assert told == (f"The gateway gives no answer since {since}. What is shown is from then.")
    assert stale == ("dashed", "1")  # told apart, and as readable as before
    assert (tab.value(frame), tab.value("$('banner').hidden")) == ("solid", True)
    assert tab.errors == []


def test_while_the_catalog_is_away_it_is_said_that_queries_go_on(
    page: Page, tab: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> None:
        raise StateUnavailable("the catalog does not answer")

    for name in ("marks", "snapshot"):
        monkeypatch.setattr(page.catalog, name, away)
    tab.wait_for("$('health').textContent.startsWith('not up to date')")

    told = tab.value("$('banner').textContent")
    assert "what is so: the catalog does not answer" in told
    assert told.endswith(" Queries are answered with what is loaded meanwhile.")


def test_a_page_that_lacks_the_token_asks_for_it_and_shows_nothing_else(tmp_path: Path) -> None:
    page = Page(tmp_path)

    @page.api.middleware("http")
    async def ask_for_it(request: Request, go_on: Callable[..., Awaitable[Response]]) -> Response:
        is_open = not request.url.path.startswith("/v1/")
        if is_open or request.headers.get("authorization") == "Bearer right":
            return await go_on(request)
        body = {"error": "a token is required", "code": "UNAUTHENTICATED"}
        return JSONResponse(body, status_code=401)

    cards = "[...document.querySelectorAll('main > section')].filter(one => one.offsetHeight)"
    with page, Driven(tmp_path) as tab:
        tab.open(page.url)
        tab.wait_for("!$('login').hidden")
        assert tab.value(f"{cards}.map(one => one.id)") == ["login"]
        assert tab.value("$('health').textContent") == "a token is needed"
        assert tab.value("$('login-says').textContent") == "This gateway asks for its token"

        give = "document.querySelector('#token input').value = '{}'; $('token').requestSubmit()"
        tab.value(give.format("wrong"))
        tab.wait_for("$('login-says').textContent === 'This is not the gateway’s token'")
        tab.value(give.format("right"))
        tab.wait_for(f"{cards}.length > 4")
        assert tab.value("$('login').hidden")


def asked(page: Page, **queries: int) -> None:
    ended = {name: {"met": count, "missed": 0, "errors": {}} for name, count in queries.items()}
    told = {"seconds": 60.0, "tasks": ended}
    page.live.slo = slo_report([{"counted_s": 60.0, "tasks": ended, "lately": told}])


def test_a_task_that_nobody_asked_gives_way_to_one_that_is_asked(page: Page, tab: Driven) -> None:
    """Unless the reader has chosen it: who opened the page first would look at nothing."""
    one = replace(variant("m", accuracy=0.9), task=TaskName("zebras"))
    version = ModelVersion(
        task=one.task, model=one.model, version=1, stage=Stage.LIVE, source=digest("m"),
        created_at="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    page.live.slo = slo_report([])
    page.catalog.register(
        Registration(
            task=replace(DIGITS, name=one.task), version=version, variants=(one,), profiles=(),
            device_kinds=(CPU,),
        )
    )  # fmt: skip
    tab.open(page.url)
    here = "$('queries').querySelector('tr.here .pick')?.textContent"
    assert tab.wait_for(here) == "digits"
    asked(page, zebras=60)
    tab.wait_for(f"{here} === 'zebras'")
    asked(page, zebras=60, digits=600)
    tab.wait_for("$('queries').textContent.includes('600')")
    assert tab.value(here) == "zebras"  # it stays as it is asked
    tab.value("document.querySelector('[data-key=\"task digits\"]').click()")
    tab.wait_for(f"{here} === 'digits'")
    asked(page, zebras=61)
    tab.wait_for("$('queries').textContent.includes('61')")
    assert tab.value(here) == "digits"
    assert tab.errors == []
