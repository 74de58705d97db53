"""Drawings of a task's variants: what is in them, not how they look."""

from dataclasses import replace

import pytest

from controlplane.plots.drawing import Form, short
from controlplane.plots.family import family_drawing, frontier_steps
from tests.controlplane.builders import CPU, DIGITS, digits_catalog, profile, variant
from tests.controlplane.plots.builders import diagram
from variants.catalog.memory import MemoryCatalog
from variants.errors import InvalidInput, TaskNotFound
from variants.types import DeviceKind, DeviceKindName, ProfileSource

OTHER = DeviceKind(name=DeviceKindName("gpu-a"), cores=4, memory_mib=8_000.0, usd_per_hour=1.0)


def predicted(catalog: MemoryCatalog) -> MemoryCatalog:
    """With the fp32 variant of ``mlp`` predicted on another device kind, from batches of 8 on."""
    known = profile(variant("mlp", accuracy=0.98), p50_ms=1.0, p95_ms=2.0, kind=OTHER)
    points = (known.points[0], replace(known.points[1], error=0.2))
    catalog.put_profiles((replace(known, points=points, source=ProfileSource.PREDICTED),), (OTHER,))
    return catalog


def test_each_variant_is_a_dot_at_its_accuracy_and_latency() -> None:
    drawing = family_drawing(digits_catalog().snapshot())
    chart = diagram(drawing, "Accuracy and latency")

    assert (drawing.title, drawing.sections[0].detail) == ("digits", "on cpu-4")
    dots = {one.name: (one.x[0], one.y[0]) for one in chart.series if one.form is Form.DOTS}
    assert dots == {
        "linear-v1-onnx-fp32": (1.0, 90.0),
        "mlp-v1-onnx-int8": (5.0, 97.0),
        "mlp-v1-onnx-fp32": (10.0, 98.0),
        "slow-v1-onnx-fp32": (20.0, 95.0),
    }
    assert (chart.x.unit, chart.y.unit) == ("ms", "%")


def test_what_another_variant_beats_is_faint_and_has_no_label_or_row() -> None:
    section = family_drawing(digits_catalog().snapshot()).sections[0]
    beaten = [one for one in section.diagrams[0].series if one.faint]

    assert [(one.name, one.label) for one in beaten] == [("slow-v1-onnx-fp32", "")]
    assert [row.name for row in section.table.rows] == [
        "linear-v1-onnx-fp32", "mlp-v1-onnx-int8", "mlp-v1-onnx-fp32"
    ]  # fmt: skip
    assert (
        section.table.note == "1 more variant, faint, is beaten by one of these, whatever is asked."
    )


def test_batches_show_rows_per_second_at_every_size() -> None:
    """One row takes half of the p95 of 1 ms, eight rows four times as long."""
    chart = diagram(family_drawing(digits_catalog().snapshot()), "Throughput by batch size")
    (linear,) = (one for one in chart.series if one.name.startswith("linear"))

    assert (list(linear.x), list(linear.y)) == ([1.0, 8.0], [2_000.0, 4_000.0])
    assert chart.x.ticks == ((1.0, "1"), (8.0, "8"))


def test_variants_of_one_kind_share_a_colour_and_the_legend_names_it() -> None:
    section = family_drawing(digits_catalog().snapshot()).sections[0]

    assert section.keys == (("onnx-fp32", "c0"), ("onnx-int8", "c1"))
    tones = {one.name: one.tone for one in section.diagrams[1].series}
    assert tones["mlp-v1-onnx-fp32"] == tones["slow-v1-onnx-fp32"] == "c0"


def test_each_device_kind_is_a_section_and_predictions_are_hollow() -> None:
    drawing = family_drawing(predicted(digits_catalog()).snapshot())

    assert [one.detail for one in drawing.sections] == [f"on {CPU.name}", "on gpu-a"]
    assert drawing.sections[0].diagrams[1].detail == ""
    (curve,) = drawing.sections[1].diagrams[1].series
    assert list(curve.hollow) == [False, True]
    assert drawing.sections[1].diagrams[1].detail == "hollow: predicted"
    assert drawing.sections[1].table.rows[0].cells[1] == "~2"


def test_there_must_be_something_to_draw() -> None:
    with pytest.raises(InvalidInput, match="no variant with a profile"):
        family_drawing(MemoryCatalog().snapshot())
    with pytest.raises(TaskNotFound):
        family_drawing(digits_catalog().snapshot(), "nothing")
    assert family_drawing(digits_catalog().snapshot(), DIGITS.name).title == "digits"


def test_the_frontier_keeps_what_is_more_accurate_than_all_that_is_faster() -> None:
    assert frontier_steps([(5, 97), (1, 90), (20, 95), (10, 98), (1, 80)]) == [
        (1, 90), (5, 97), (10, 98)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1_234.5, "1,234"), (1.5, "1.5"), (0.12345, "0.123"), (1.49e-5, "0.0000149")],
)
def test_numbers_for_reading_have_about_three_digits(value: float, text: str) -> None:
    assert short(value) == text
