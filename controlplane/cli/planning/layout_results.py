"""What ``modelless simulate --layouts`` tries beside a machine that plans split, and says of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from controlplane.cli.render import table

if TYPE_CHECKING:
    from planner.simulation.results import LayoutChange, Report
    from planner.simulation.setting import Setting, Split
    from planner.solver.problem import AvailableKind


def kinds_of(split: "Split", kinds: "Sequence[AvailableKind]") -> "tuple[AvailableKind, ...]":
    """The device kinds of a machine's layouts, with as many workers as a layout has at most."""
    most = split.most
    return tuple(replace(one, count=most[one.name]) for one in kinds if one.name in most)


def each_alone(setting: "Setting", split: "Split") -> "Iterator[Setting]":
    """The same machine with one of its layouts throughout, for each of them."""
    for layout in split.layouts:
        kinds = tuple(
            replace(one, count=layout[one.name]) for one in setting.kinds if layout.get(one.name)
        )
        yield replace(setting, kinds=kinds, elastic=False, split=None)


def titled(alone: "Sequence[Report]", split: "Split") -> "list[Report]":
    """The reports of single layouts, under the names of these."""
    from planner.layouts import words

    pairs = zip(alone, split.layouts, strict=True)
    return [replace(report, policy=words(layout)) for report, layout in pairs]


def as_json_of(
    report: "Report", split: "Split", alone: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The changes, and what each layout comes to by itself."""
    return {
        "layout_changes": [asdict(one) for one in report.layout_changes],
        "each_layout": [
            {"layout": dict(layout), **one}
            for layout, one in zip(split.layouts, alone, strict=True)
        ],
    }


def show_changes(report: "Report") -> None:
    """A line for each change."""
    table(
        [">AT S", ">DONE S", "LAYOUT", "WHY"],
        (
            [f"{one.at_s:,.0f}", _done(one), one.layout, one.given_up or one.why]
            for one in report.layout_changes
        ),
        empty="The machine was not split anew.",
    )


def _done(one: "LayoutChange") -> str:
    if one.done_s is not None:
        return f"{one.done_s:,.0f}"
    return "given up" if one.given_up else "-"
