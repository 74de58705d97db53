"""``--plot FILE``: pages and pictures of every drawing, and what is refused."""

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from controlplane.plots.drawing import Drawing
from controlplane.plots.family import family_drawing
from controlplane.plots.page import html
from controlplane.plots.plot_file import check_target, write_plot
from controlplane.plots.simulation import simulation_drawing
from planner.simulation.results import Interval
from tests.controlplane.builders import digits_catalog
from tests.controlplane.plots.builders import TWO, interval, report
from variants.errors import InvalidInput

MAGIC = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml", "html": b"<!doctype html>"}
EVIL = "</script><script>alert(1)</script><!--data-->"


def simulated(title: str = "trace.csv", *policies: str) -> Drawing:
    return simulation_drawing([report(name, *TWO) for name in policies or ("modelless",)], title)


# -- pages --------------------------------------------------------------------------------------


def test_a_page_is_one_file_that_asks_for_no_other() -> None:
    page = html(simulated())

    assert re.findall(r"(?:src|href)=|url\(|@import|fetch|XMLHttp|https://", page) == []
    assert re.findall(r"<!--\w+-->", page) == []
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    assert "default-src &#x27;none&#x27;" in policy[1]
    assert "unsafe" not in policy[1]


def test_a_page_holds_the_whole_drawing_as_json() -> None:
    drawing = simulated("trace.csv", "modelless", "clipper")

    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', html(drawing))

    assert data
    found = json.loads(data[1])
    assert (found["heading"], found["title"]) == ("Simulation", "trace.csv")
    (section,) = found["sections"]
    assert [len(one["series"]) for one in section["diagrams"]] == [3, 2, 2, 2, 2]
    assert section["diagrams"][2]["series"][0]["y"] == [80.0, None]
    assert [row["name"] for row in section["table"]["rows"]] == ["modelless", "clipper"]


def test_what_comes_from_files_is_text_in_a_page() -> None:
    page, plain = html(simulated(EVIL, EVIL, "b")), html(simulated("t", "a", "b"))

    assert page.count("<script") == plain.count("<script")
    assert page.count("</script") == plain.count("</script")
    assert "<script>alert" not in page


# -- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeline", [(), (interval(arrived=0, in_time=0),), TWO])
@pytest.mark.parametrize("suffix", ["html", "png", "svg"])
def test_every_timeline_can_be_drawn(
    suffix: str, timeline: tuple[Interval, ...], tmp_path: Path
) -> None:
    if suffix != "html":
        pytest.importorskip("matplotlib")
    path = tmp_path / f"plot.{suffix}"

    reports = [report("modelless", *timeline), report("clipper", *timeline)]
    write_plot(path, simulation_drawing(reports, "t"))

    assert path.read_bytes().startswith(MAGIC[suffix])


@pytest.mark.parametrize("suffix", ["html", "png", "svg"])
def test_variants_can_be_drawn(suffix: str, tmp_path: Path) -> None:
    if suffix != "html":
        pytest.importorskip("matplotlib")
    path = tmp_path / f"plot.{suffix.upper()}"

    write_plot(path, family_drawing(digits_catalog().snapshot()))

    assert path.read_bytes().startswith(MAGIC[suffix])


def test_the_text_of_an_svg_is_text() -> None:
    pytest.importorskip("matplotlib")
    from controlplane.plots.figures import svg

    simulation = text_of(svg(simulated("trace.csv", "modelless", "clipper")))
    family = text_of(svg(family_drawing(digits_catalog().snapshot())))

    assert {"Simulation: trace.csv", "Accuracy", "USD per hour", "clipper", "10 s"} <= simulation
    assert {"p95 latency of one row, ms", "onnx-int8", "mlp-v1-onnx-int8"} <= family


def text_of(picture: bytes) -> set[str]:
    tree = ElementTree.fromstring(picture)
    return {(node.text or "").strip() for node in tree.iter() if node.tag.endswith("}text")}


def test_the_same_drawing_gives_the_same_svg() -> None:
    pytest.importorskip("matplotlib")
    from controlplane.plots.figures import svg

    assert svg(simulated()) == svg(simulated())
    assert b"dc:date" not in svg(simulated())


@pytest.mark.parametrize(
    "title",
    [
        "a $\\bad$ one_^.csv",
        pytest.param("痕.csv", marks=pytest.mark.campaign),
        "<&>.csv",
        "\udcff.csv",
    ],
)
def test_any_name_of_a_file_can_be_a_title(title: str) -> None:
    pytest.importorskip("matplotlib")
    from controlplane.plots.figures import png, svg

    drawing = simulated(title)

    assert f"Simulation: {drawing.title}" in text_of(svg(drawing))
    assert png(drawing).startswith(MAGIC["png"])
    assert html(drawing).encode()


def test_a_picture_needs_no_pyplot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    before = "matplotlib.pyplot" in sys.modules
    write_plot(tmp_path / "plot.png", simulated())

    assert before or "matplotlib.pyplot" not in sys.modules


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("plot.pdf", "must end in .html, .png or .svg"),
        ("plot", "must end in .html, .png or .svg"),
        ("none/plot.html", "there is no folder"),
        ("folder.html", "it is a folder"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_first(
    name: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "folder.html").mkdir()

    with pytest.raises(InvalidInput, match=why):
        check_target(tmp_path / name)


def test_without_matplotlib_a_picture_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.plots.plot_file.find_spec", lambda name: None)

    check_target(tmp_path / "plot.html")
    for name in ("plot.svg", "plot.png"):
        with pytest.raises(
            InvalidInput, match=r"needs matplotlib: `pip install 'modelless\[plot\]'`"
        ):
            check_target(tmp_path / name)
