"""Reports and catalogs with round numbers, to draw."""

from controlplane.plots.drawing import Diagram, Drawing
from planner.simulation.results import Interval, Report


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


def values(drawing: Drawing) -> dict[str, dict[str, list[float | None]]]:
    """The y values of each series of each diagram, by their names."""
    return {
        diagram.title: {one.name: list(one.y) for one in diagram.series}
        for section in drawing.sections
        for diagram in section.diagrams
    }


def diagram(drawing: Drawing, title: str, section: int = 0) -> Diagram:
    return next(one for one in drawing.sections[section].diagrams if one.title == title)
