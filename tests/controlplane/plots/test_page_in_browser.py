"""The page of a drawing in a real browser: it draws, and it can be read by keys and as a table."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.plots.drawing import Drawing
from controlplane.plots.family import family_drawing
from controlplane.plots.page import html
from controlplane.plots.simulation import simulation_drawing
from tests.controlplane.builders import digits_catalog
from tests.controlplane.dashboard.browser import Shown, one_browser, show
from tests.controlplane.plots.builders import TWO, interval, report

EMPTY = interval(arrived=0, in_time=0, late=0, rejected=0)
DRAWINGS = {
    "one": simulation_drawing([report("modelless", *TWO)], "trace.csv"),
    "two": simulation_drawing([report("modelless", *TWO), report("clipper", *TWO)], "trace.csv"),
    "nothing": simulation_drawing([report("modelless", EMPTY)], "</script>"),
    "variants": family_drawing(digits_catalog().snapshot()),
}


@pytest.fixture(scope="module", autouse=True)
def shared_browser() -> Iterator[None]:
    with one_browser():
        yield


def shown(drawing: Drawing, folder: Path, script: str = "", *, dark: bool = False) -> Shown:
    """The page after a script of the test has run in it, for which the policy makes way."""
    page = html(drawing)
    if script:
        page = re.sub(r"<meta http-equiv[^>]*>", "", page)
        page = page.replace("</body>", f"<script>{script}</script></body>")
    path = folder / "plot.html"
    path.write_text(page, encoding="utf-8")
    return show(path.as_uri(), folder, dark=dark)


@pytest.mark.parametrize(
    ("name", "dark"), [("one", False), ("two", True), ("nothing", False), ("variants", False)]
)
def test_every_diagram_is_drawn_without_a_complaint(name: str, dark: bool, tmp_path: Path) -> None:
    drawing = DRAWINGS[name]
    page = shown(drawing, tmp_path, dark=dark)

    assert page.console == []
    diagrams = [one for section in drawing.sections for one in section.diagrams]
    labels = re.findall(r'<svg [^>]*aria-label="([^",]*)', page.body)
    assert labels == [one.title for one in diagrams]
    drawn = re.findall(r'<g class="series [^"]*" data-name="([^"]*)"', page.body)
    assert sorted(drawn) == sorted(one.name for each in diagrams for one in each.series)
    assert "NaN" not in page.body
    assert "Infinity" not in page.body


def test_a_narrow_range_of_a_logarithmic_axis_has_marks_too(tmp_path: Path) -> None:
    script = """
        const marks = (least, most) => axisTicks({ scale: "log", least, most }).map(([, text]) => text);
        document.body.prepend(`<${marks(.28, .52).join(" ")}> <${marks(.1, 10).join(" ")}>`);
    """  # noqa: E501
    text = shown(DRAWINGS["variants"], tmp_path, script).text
    assert "&lt;0.3 0.4 0.5&gt; &lt;0.1 0.2 0.5 1 2 5 10&gt;" in text


PRESS = """
    const chart = document.querySelector("svg"), say = text => document.body.prepend(text);
    const press = key => chart.dispatchEvent(new KeyboardEvent("keydown", { key }));
    const openTables = () => { for (const one of document.querySelectorAll("details")) one.open = true; };
"""  # noqa: E501


def test_a_simulation_is_read_by_keys_and_as_a_table_and_policies_can_be_hidden(
    tmp_path: Path,
) -> None:
    script = """
        press("ArrowRight"); press("ArrowRight");
        say("box: " + document.getElementById("readout").innerText.replace(/\\s+/g, " "));
        say("spoken: " + chart.getAttribute("aria-valuetext"));
        const button = [...document.querySelectorAll("button")].find(one => one.innerText === "clipper");
        const drawn = () => document.querySelectorAll("g[data-name=clipper]").length;
        const seen = [drawn()];
        for (const _ of "12") { button.click(); seen.push(drawn(), button.getAttribute("aria-pressed")); }
        say("drawn: " + seen.join(" "));
        openTables();
    """  # noqa: E501
    text = shown(DRAWINGS["two"], tmp_path, PRESS + script).text

    assert "spoken: 0:00:10 to 0:00:20: demand 20, modelless 20, clipper 20" in text
    assert "demand 20 Capacity Violations Accuracy Devices Cost modelless 20 100 – 2 1" in text
    assert "drawn: 5 0 false 5 true" in text
    assert "Time modelless clipper 0:00:00 10 10 0:00:10 100 100" in text


def test_variants_are_read_by_keys_from_the_fastest_on_and_as_a_table(tmp_path: Path) -> None:
    script = """
        press("Home");
        say("box: " + document.getElementById("readout").innerText.replace(/\\s+/g, " "));
        say("marked: " + document.querySelector("tr.lit td").innerText);
        openTables();
    """
    text = shown(DRAWINGS["variants"], tmp_path, PRESS + script).text

    assert "marked: linear-v1-onnx-fp32" in text
    assert "p95 latency of one row 1 ms accuracy 90.00 %" in text
    assert "throughput 4,000 rows/s at batch 8" in text
    assert "Variant rows in a batch throughput, rows/s linear-v1-onnx-fp32 1 2,000" in text
