"""What the names of columns mean is there for everybody: by touch and by keyboard too."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.controlplane.builders import worker
from tests.controlplane.dashboard.driven import Driven
from tests.controlplane.dashboard.served import FP32, INT8, Page
from tests.controlplane.dashboard.test_narrow import fill
from variants.types import ReplicaState

pytestmark = pytest.mark.slow

SUMMARY = "$('variants').querySelector('.meanings summary')"
OPEN = "$('variants').querySelector('.meanings').open"
UNEXPLAINED = """
[...document.querySelectorAll('main th[title]')].filter(th => {
  const terms = [...th.closest('section').querySelectorAll('.meanings dt')];
  const name = th.textContent.replace(/ [↑↓]$/, '') || 'First column';
  const says = dt => dt.textContent === name && dt.nextElementSibling.textContent === th.title;
  return !terms.some(says);
}).map(th => th.textContent)
"""


def test_each_column_that_a_pointer_explains_is_explained_in_text(
    page: Page, tmp_path: Path
) -> None:
    fill(page)
    with Driven(tmp_path, width=1300) as tab:
        tab.open(page.url + "#digits?accuracy=95")
        tab.wait_for("$('why').querySelector('td') && $('canaries').querySelector('td') && true")
        assert tab.value("document.querySelectorAll('main th[title]').length") > 20
        assert tab.value(UNEXPLAINED) == []


def test_a_key_opens_them_and_they_stay_open_when_the_table_is_drawn_anew(
    page: Page, tmp_path: Path
) -> None:
    page.plan()
    with Driven(tmp_path, width=1300) as tab:
        tab.open(page.url)
        tab.wait_for(f"{SUMMARY} && true")
        tab.value(f"{SUMMARY}.focus()")
        for kind in ("keyDown", "keyUp"):
            tab.call(
                "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r",
                windowsVirtualKeyCode=13,
            )  # fmt: skip
        tab.wait_for(f"{OPEN} && unfoldedMeanings.has('variants')")
        tab.value("variantsGrid.draw()")
        assert tab.value(OPEN) is True
        assert tab.value(f"document.activeElement === {SUMMARY}") is True


def test_a_finger_opens_them(page: Page, tmp_path: Path) -> None:
    page.plan()
    with Driven(tmp_path, width=390) as tab:
        tab.call("Emulation.setTouchEmulationEnabled", enabled=True)
        tab.open(page.url)
        tab.wait_for(f"{SUMMARY} && true")
        tab.value(f"{SUMMARY}.scrollIntoView({{block: 'center'}})")
        at = tab.value(f"(r => [r.x + 20, r.y + r.height / 2])({SUMMARY}.getBoundingClientRect())")
        point = [{"x": at[0], "y": at[1]}]
        tab.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=point)
        tab.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        tab.wait_for(OPEN)


def test_why_a_worker_is_warned_of_stands_beneath_it(page: Page, tmp_path: Path) -> None:
    page.plan()
    with Driven(tmp_path, width=390) as tab:
        tab.open(page.url)
        tab.wait_for("$('workers').querySelector('.worker') && true")
        notes = tab.value(
            "workerNotes({warnings: ['it is slow'], replicas: [{task: 'digits', variant: 'mlp',"
            " state: 'quarantined', message: 'it crashed', quarantined_s: 1}]})"
            ".map(one => one.textContent)"
        )
        assert notes[0] == "it is slow"
        assert notes[1].startswith("quarantined digits/mlp: it crashed; since ")
        assert notes[1].endswith("modelless quarantine lift digits mlp")


def test_what_is_said_of_a_variant_that_is_not_ready_is_said_once(
    page: Page, tmp_path: Path
) -> None:
    page.plan()
    status = worker("w1", INT8, FP32)
    failed = replace(status.replicas[0], state=ReplicaState.QUARANTINED, message="it crashed")
    page.live.statuses = [replace(status, replicas=(failed, status.replicas[1]))]
    with Driven(tmp_path) as tab:
        tab.open(page.url)
        tab.wait_for("$('workers').querySelector('.note') && true")
        shown = tab.value("$('workers').innerText")
    assert shown.count(INT8) == shown.count("quarantined") == shown.count("it crashed") == 1
    assert FP32 in shown
