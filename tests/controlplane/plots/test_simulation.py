"""Drawings of simulations: what is in them, not how they look."""

from math import inf

import pytest

from controlplane.plots.drawing import LINE_TONES, STROKES, Key, colour_and_stroke
from controlplane.plots.simulation import POINTS, merge, simulation_drawing, time_ticks
from planner.bounds.bound import Beside
from planner.simulation.results import Report
from tests.controlplane.plots.builders import TWO, diagram, interval, report, values


def shown(*reports: Report) -> dict[str, dict[str, list[float | None]]]:
    return values(simulation_drawing(reports, "t"))


def test_one_report_shows_every_value_over_time() -> None:
    assert shown(report("modelless", *TWO)) == {
        "Demand and capacity": {"demand": [10.0, 20.0], "capacity": [20.0, 20.0]},
        "Violations": {"late": [4.0, 0.0], "rejected or late": [10.0, 100.0]},
        "Accuracy": {"modelless": [80.0, None]},
        "Devices": {"modelless": [2.0, 2.0]},
        "Cost": {"modelless": [1.0, 1.0]},
    }


def test_several_reports_are_lines_of_their_own() -> None:
    panels = shown(report("modelless", *TWO), report("clipper", *TWO))

    assert list(panels["Violations"]) == ["modelless", "clipper"]
    assert list(panels["Demand and capacity"]) == ["demand", "modelless", "clipper"]


def test_a_legend_names_what_a_diagram_shows() -> None:
    """One report: in each diagram with several series; several: once, for all diagrams."""
    one = simulation_drawing([report("a", *TWO)], "t").sections[0]
    two = simulation_drawing([report("a", *TWO), report("b", *TWO)], "t").sections[0]

    def keys(diagrams: object = one.diagrams) -> list[tuple[Key, ...]]:
        return [each.keys for each in diagrams]  # type: ignore[attr-defined]

    assert one.keys == ()
    assert keys()[:2] == [
        (("demand", "demand"), ("capacity", "c0")),
        (("late", "late"), ("rejected or late", "rejected")),
    ]
    assert two.keys == (("a", "c0 line"), ("b", "c1 line"))
    assert keys(two.diagrams) == [(("demand", "demand"),), (), (), (), ()]


def test_the_table_has_the_totals_of_each_report() -> None:
    (row,) = simulation_drawing([report("modelless", *TWO)], "t").sections[0].table.rows

    assert (row.name, row.tone) == ("modelless", "c0 line")
    assert row.cells == ("100", "10.00 %", "4", "6", "80.00 %", "1.5", "50.0 %", "1", "0")


def test_the_table_has_the_regret_of_each_report_where_the_bound_is_known() -> None:
    missed = Beside(
        bound_violation_ratio=0.0,
        bound_accuracy=0.9,
        bound_cost_usd=1.0,
        regret_violation_ratio=0.1,
        regret_accuracy=0.1,
        regret_cost_ratio=0.5,
        bound_whole_cost_usd=1.0,
        regret_whole_cost_ratio=0.5,
    )
    table = simulation_drawing([report("modelless", *TWO)], "t", [missed]).sections[0].table

    assert table.head[-3:] == ("Regret: violations", "Accuracy", "USD")
    assert table.rows[0].cells[-3:] == ("10.00 %", "10.00 %", "50.00 %")
    assert len(table.head) == len(table.rows[0].cells) + 1


def test_an_infinite_capacity_is_not_drawn() -> None:
    panels = shown(report("modelless", interval(capacity_qps=inf)))

    assert panels["Demand and capacity"]["capacity"] == [None]


def test_a_capacity_far_above_the_demand_is_cut_off_and_said_to_be() -> None:
    """At twice and a half the demand of 100 per second, and a little air."""
    drawing = simulation_drawing([report("modelless", interval(capacity_qps=1e6))], "t")
    panel = diagram(drawing, "Demand and capacity")

    assert panel.y.most == 262.5
    assert panel.detail == "queries per second; capacity is cut off at 262"


def test_a_timeline_that_ends_early_has_no_values_for_the_rest() -> None:
    panels = shown(report("modelless", *TWO), report("clipper", TWO[0]))

    assert panels["Devices"] == {"modelless": [2.0, 2.0], "clipper": [2.0, None]}


def test_every_report_has_a_line_of_its_own_by_colour_or_stroke_however_many() -> None:
    most = LINE_TONES * len(STROKES)
    drawing = simulation_drawing([report(f"p{i}", *TWO) for i in range(most + 1)], "t")

    tones = [tone for _, tone in drawing.sections[0].keys]
    assert len(set(tones)) == most
    assert (tones[LINE_TONES], tones[most - 1], tones[most]) == (
        "c0 line dashed", "c6 line dotted", "c0 line",
    )  # fmt: skip
    assert {colour_and_stroke(tone) for tone in tones} == {
        (f"c{colour}", stroke) for colour in range(LINE_TONES) for stroke in STROKES
    }


def test_a_long_timeline_is_put_together_without_losing_a_query() -> None:
    timeline = [interval(10.0 * i, accuracy=0.5 if i % 2 else 1.0) for i in range(2 * POINTS + 1)]

    merged = merge(timeline, 3)
    drawn = shown(report("modelless", *timeline))["Devices"]["modelless"]

    assert len(merged) == len(drawn) <= POINTS
    for name in ("arrived", "in_time", "late", "rejected", "loads"):
        assert sum(getattr(i, name) for i in merged) == sum(getattr(i, name) for i in timeline)
    assert merged[1].start_s == 30.0
    assert merged[0].accuracy == pytest.approx(2.5 / 3)


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
