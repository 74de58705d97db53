"""Pictures of simulations: what is in them, not how they look."""

import re
from math import inf
from pathlib import Path
from xml.etree import ElementTree

import pytest

from controlplane.plot_html import html
from controlplane.plots import (
    POINTS,
    check_target,
    merge,
    picture,
    time_ticks,
    value_ticks,
    write_plot,
)
from planner.simulation.results import Interval, Report
from variants.errors import InvalidInput


def interval(start_s: float = 0.0, **other: float) -> Interval:
    values: dict[str, float] = {
        "arrived": 100, "in_time": 90, "late": 4, "rejected": 6, "accuracy": 0.8, "devices": 2,
        "capacity_qps": 20.0, "usd_per_hour": 1.0, "busy_ratio": 0.5, "loads": 1, "evictions": 0,
    }  # fmt: skip
    return Interval(start_s=start_s, **(values | other))  # type: ignore[arg-type]


def report(policy: str, *timeline: Interval) -> Report:
    return Report(
        policy=policy, requests=100, in_time=90, late=4, rejected=6, violation_ratio=0.1,
        effective_accuracy=0.8, cost_usd=1.5, busy_ratio=0.5, loads=1, evictions=0,
        load_s_total=1.0, decision_us_p50=5.0, decision_us_p99=9.0, plan_ms_p50=1.0,
        plan_ms_p99=2.0, timeline=timeline,
    )  # fmt: skip


TWO = (interval(0.0), interval(10.0, arrived=200, in_time=0, late=0, rejected=200))


def shown(reports: list[Report]) -> dict[str, dict[str, list[float | None]]]:
    return {
        panel.title: {line.name: list(line.values) for line in panel.lines}
        for panel in picture(reports, "t").panels
    }


def test_one_report_shows_every_value_over_time() -> None:
    assert shown([report("modelless", *TWO)]) == {
        "Demand and capacity": {"demand": [10.0, 20.0], "capacity": [20.0, 20.0]},
        "Violations": {"rejected or late": [10.0, 100.0], "late": [4.0, 0.0]},
        "Accuracy": {"modelless": [80.0, None]},
        "Devices": {"modelless": [2.0, 2.0]},
        "Cost": {"modelless": [1.0, 1.0]},
    }


def test_several_reports_are_lines_of_their_own() -> None:
    panels = shown([report("modelless", *TWO), report("clipper", *TWO)])

    assert list(panels["Violations"]) == ["modelless", "clipper"]
    assert list(panels["Demand and capacity"]) == ["demand", "modelless", "clipper"]


def test_an_infinite_capacity_is_not_drawn() -> None:
    panels = shown([report("modelless", interval(capacity_qps=inf))])

    assert panels["Demand and capacity"]["capacity"] == [None]


def test_a_capacity_far_above_the_demand_is_cut_off_and_said_to_be() -> None:
    """At twice and a half the demand of 100 per second, and a little air."""
    panel = picture([report("modelless", interval(capacity_qps=1e6))], "t").panels[0]

    assert (panel.most, panel.unit) == (262.5, "queries per second; capacity is cut off at 262")


def test_a_long_timeline_is_put_together_without_losing_a_query() -> None:
    timeline = [interval(10.0 * i, accuracy=0.5 if i % 2 else 1.0) for i in range(2 * POINTS + 1)]

    merged = merge(timeline, POINTS)

    assert len(merged) <= POINTS
    for name in ("arrived", "in_time", "late", "rejected", "loads"):
        assert sum(getattr(i, name) for i in merged) == sum(getattr(i, name) for i in timeline)
    assert merged[1].start_s == 30.0
    assert merged[0].accuracy == pytest.approx(2.5 / 3)


def test_html_is_one_file_that_asks_for_no_other() -> None:
    page = html(picture([report("modelless", *TWO)], "trace.csv"))

    assert re.findall(r"(?:src|href)=|url\(|@import|fetch|https?://", page) == []
    assert re.findall(r"<!--\w+-->", page) == []
    drawings = re.findall(r"(<svg viewBox.*?</svg>)</section>", page, re.DOTALL)
    assert len(drawings) == 5
    for drawing in drawings:
        ElementTree.fromstring(drawing)


def test_what_comes_from_files_is_text_in_html() -> None:
    evil = "</script><script>alert(1)</script>"

    page = html(picture([report(evil, *TWO), report("b", *TWO)], evil))

    assert page.count("<script") == 2
    assert "<script>alert" not in page


@pytest.mark.parametrize("timeline", [(), (interval(arrived=0, in_time=0),), TWO])
@pytest.mark.parametrize("suffix", ["html", "png"])
def test_every_timeline_can_be_drawn(
    suffix: str, timeline: tuple[Interval, ...], tmp_path: Path
) -> None:
    if suffix == "png":
        pytest.importorskip("matplotlib")
    path = tmp_path / f"plot.{suffix}"

    write_plot(path, [report("modelless", *timeline), report("clipper", *timeline)], "t")

    start = path.read_bytes()[:8]
    assert start == (b"\x89PNG\r\n\x1a\n" if suffix == "png" else b"<!doctyp")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("plot.svg", "must end in .html or .png"),
        ("none/plot.html", "there is no folder"),
        ("folder.html", "it is a folder"),
    ],
)
def test_a_picture_that_cannot_be_written_is_refused_first(
    name: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "folder.html").mkdir()

    with pytest.raises(InvalidInput, match=why):
        check_target(tmp_path / name)


@pytest.mark.parametrize(
    ("end_s", "texts"),
    [
        (5, ["0", "1 s", "2 s", "3 s", "4 s", "5 s"]),
        (1_500, ["0", "5 min", "10 min", "15 min", "20 min", "25 min"]),
        (172_800, ["0", "6 h", "12 h", "18 h", "24 h", "30 h", "36 h", "42 h", "48 h"]),
    ],
)
def test_times_are_marked_in_a_unit_that_suits(end_s: float, texts: list[str]) -> None:
    assert [text for _, text in time_ticks(0.0, end_s)] == texts


def test_values_are_marked_at_round_numbers() -> None:
    assert value_ticks(0, 105) == [0, 50, 100]
    assert value_ticks(79.5, 82.5) == [80, 81, 82]
    assert value_ticks(1, 1) == [1]
