"""Pages as texts: one style sheet and the scripts are inside, and the policy names them."""

import base64
import hashlib
import re
from importlib.resources import files

import pytest

from controlplane.api.reading.event_kinds import EVENT_KINDS
from controlplane.controller.events.journal import TROUBLES
from controlplane.dashboard.pages import PAGES, light_colours, page_text, read_page
from controlplane.plots.drawing import TONES

NAMES = (*PAGES.values(), "plot.html")


@pytest.mark.parametrize("name", NAMES)
def test_a_page_holds_the_one_style_sheet_and_the_scripts_that_it_names(name: str) -> None:
    page = page_text(name)

    assert re.findall(r'<link rel="stylesheet"|<script src', page) == []
    assert len(re.findall("<style>", page)) == 1
    assert "--c11:" in page
    source = (files("controlplane.dashboard.pages") / name).read_text()
    assert ("class Chart" in page) == ("charts.js" in source)


@pytest.mark.parametrize("name", NAMES)
def test_the_policy_allows_exactly_the_blocks_of_the_page(name: str) -> None:
    page, headers = read_page(name)

    allowed = set(re.findall(r"'sha256-([^']+)'", headers["Content-Security-Policy"]))
    blocks = re.findall(r"<(?:script|style)>(.*?)</(?:script|style)>", page.decode(), re.DOTALL)
    assert allowed == {
        base64.b64encode(hashlib.sha256(block.encode()).digest()).decode() for block in blocks
    }


def test_the_dark_theme_has_every_colour_of_the_light_one() -> None:
    sheet = (files("controlplane.dashboard.pages") / "style.css").read_text()
    dark = sheet[sheet.index("prefers-color-scheme: dark") :].partition("}")[0]

    assert set(re.findall(r"--([\w-]+): #[0-9a-f]{6};", dark)) == set(light_colours())
    tones = {*(f"c{index}" for index in range(TONES)), "demand", "late", "rejected", "soft"}
    assert set(re.findall(r"\.([\w-]+) \{ --tone: var\(--\1\); \}", sheet)) == tones
    assert tones <= set(light_colours())


def test_events_that_want_a_hand_are_those_of_the_log() -> None:
    """And what the log is told otherwise: what is away."""
    page = page_text("index.html")
    listed = re.search(r"TROUBLES = new Set\(\s*`([^`]*)`", page)
    assert listed
    away = {"catalog_lost", "catalog_unwritable", "live_state_lost"}
    assert set(listed[1].split()) == TROUBLES | away
    assert away <= EVENT_KINDS


def test_what_is_not_well_is_no_alert_that_is_read_out_with_every_number_that_changes() -> None:
    page = page_text("index.html")
    assert 'id="health" role="status"' in page
    assert 'role="alert"' not in page
