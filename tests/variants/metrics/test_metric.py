"""Which metrics there are, and how they are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from variants.errors import InvalidInput
from variants.metrics.metric import (
    LABELS,
    TARGETS,
    TOP1,
    Metric,
    MetricKind,
    check_output,
    parse_metric,
)
from variants.types import TensorSpec


def output(*shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name="values", dtype=dtype, shape=shape)


@pytest.mark.parametrize(
    ("text", "written", "truth", "counts_rows"),
    [
        ("top1", "top1", LABELS, True),
        ("top5", "top5", LABELS, True),
        ("balanced", "balanced", LABELS, False),
        ("f1", "f1", LABELS, False),
        ("r2", "r2", TARGETS, False),
        ("cosine", "cosine", TARGETS, False),
        ("nearest", "nearest", LABELS, True),
        ("within:0.50", "within:0.5", TARGETS, True),
        ("within:2", "within:2", TARGETS, True),
        ("within:1e-5", "within:1e-05", TARGETS, True),
        ("within:5.0%", "within:5%", TARGETS, True),
        ("within:0.1%", "within:0.1%", TARGETS, True),
    ],
)
def test_metrics_are_read_and_written(
    text: str, written: str, truth: str, counts_rows: bool
) -> None:
    metric = parse_metric(text)
    assert str(metric) == written
    assert parse_metric(written) == metric
    assert (metric.truth, metric.counts_rows) == (truth, counts_rows)
    assert metric.means()


@given(st.floats(1e-30, 1e30), st.sampled_from(["", "%"]))
def test_any_tolerance_is_written_so_that_it_is_read_again(number: float, unit: str) -> None:
    metric = parse_metric(f"within:{number!r}{unit}")
    assert (metric.tolerance, metric.relative) == (number, unit == "%")
    assert parse_metric(str(metric)) == metric


@pytest.mark.parametrize("text", ["vibes", "", "TOP1", "r2:3", "top1 ", "nearest:5"])
def test_what_is_no_metric_is_told_which_there_are(text: str) -> None:
    with pytest.raises(
        InvalidInput, match=r"there is no metric .*; there are: top1, top5, balanced"
    ):
        parse_metric(text)


@pytest.mark.parametrize(
    "text",
    [
        "within", "within:", "within:0", "within:-1", "within:nan", "within:inf", "within:1e999",
        "within:5 %", "within:%", "within:1e31", "within:0x1", "within:1_0", "within:five",
    ],
)  # fmt: skip
def test_a_tolerance_is_a_positive_number(text: str) -> None:
    with pytest.raises(InvalidInput, match="needs a positive tolerance: within:0"):
        parse_metric(text)


def test_only_a_classifier_has_to_give_a_score_for_each_class() -> None:
    wrong = [output(), output(1), output(2, 3), output(2, dtype="int64")]
    assert check_output(TOP1, output(2)) is None
    assert {check_output(TOP1, one) for one in wrong} == {"must be scores, float [batch, classes]"}
    r2 = Metric(kind=MetricKind.R2)
    fitting = [output(), output(1), output(2, 3), output(4, 4, 4, dtype="float64")]
    assert {check_output(r2, one) for one in fitting} == {None}
    assert check_output(r2, output(dtype="int64")) == "must be of real numbers for the metric r2"
