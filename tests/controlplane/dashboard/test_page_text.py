"""Pages as texts: one style sheet and the scripts are inside, and the policy names them."""

import base64
import hashlib
import re
from importlib.resources import files

import pytest

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
