from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.onnx_models import model, node, tensor
from tests.variants.builders.onnx.networks import images, residual
from variants.builders.activations import BATCH_BYTES, observe, spread
from variants.builders.calibration import (
    BINS,
    Calibration,
    by_entropy,
    by_percentile,
    ranges,
)
from variants.builders.prepared import float_tensors, prepared
from variants.errors import VariantNotBuilt

RANDOM = np.random.default_rng(0)
BODY = RANDOM.standard_normal((128, 4096)).astype(np.float32)


def passing(width: int = 4096) -> object:
    """A model whose only activation is what goes in."""
    return model(
        nodes=[node("Relu", ("x",), "y")],
        inputs=[tensor("x", "batch", width)],
        outputs=[tensor("y", "batch", width)],
        weights={"unused": np.zeros(1, np.float32)},
    )


def test_min_max_covers_every_value_of_every_tensor(tmp_path: Path) -> None:
    proto = prepared(residual(tmp_path / "net.onnx"))
    names = sorted(float_tensors(proto))
    rows = images(40)

    found = ranges(proto, names, rows, Calibration.MIN_MAX)

    (whole,) = [_all(proto, names, rows)]
    assert found == {
        name: (min(0.0, whole[name].min()), max(0.0, whole[name].max())) for name in names
    }


def test_one_outlier_decides_min_max_and_is_cut_by_the_others() -> None:
    rows = {"x": BODY.copy()}
    rows["x"][5, 7] = 1000.0

    found = {how: ranges(passing(), ["x"], rows, how)["x"] for how in Calibration}

    assert found[Calibration.MIN_MAX][1] == 1000.0
    assert 3.5 < found[Calibration.PERCENTILE][1] < 4.5  # 99.995 % of a normal lie below 3.9
    assert 3.5 < found[Calibration.ENTROPY][1] < 80.0  # 256 of the bins that reach to 1,000
    assert found[Calibration.ENTROPY] != found[Calibration.PERCENTILE]


def test_without_outliers_the_methods_hardly_differ() -> None:
    found = {how: ranges(passing(), ["x"], {"x": BODY}, how)["x"] for how in Calibration}

    low, high = found[Calibration.MIN_MAX]
    for how in (Calibration.ENTROPY, Calibration.PERCENTILE):
        assert found[how] == pytest.approx((low, high), rel=0.35)


def test_entropy_does_not_take_the_zeros_behind_a_relu_for_its_main_message() -> None:
    found = ranges(passing(), ["y"], {"x": BODY}, Calibration.ENTROPY)["y"]

    assert found[0] == 0.0
    assert found[1] > 3.5


@settings(max_examples=30, deadline=None)
@given(
    counts=st.lists(st.integers(0, 1000), min_size=8, max_size=64),
    ends=st.tuples(st.floats(-1e4, 0), st.floats(1e-3, 1e4)),
)
def test_a_cut_range_lies_inside_and_holds_zero(
    counts: list[int], ends: tuple[float, float]
) -> None:
    histogram = np.zeros(BINS, dtype=np.int64)
    histogram[:: BINS // len(counts)][: len(counts)] = counts

    for cut in (by_entropy, by_percentile):
        low, high = cut(histogram, *ends)
        slack = 1e-9 * (ends[1] - ends[0])
        assert ends[0] - slack <= low <= 0.0 <= high <= ends[1] + slack


def test_percentile_keeps_the_share_it_promises() -> None:
    values = np.sort(BODY.ravel())
    low, high = ranges(passing(), ["x"], {"x": BODY}, Calibration.PERCENTILE)["x"]

    inside = np.mean((values >= low) & (values <= high))
    assert 0.9999 <= inside < 1.0


def test_batches_hold_as_many_rows_as_memory_allows() -> None:
    wide = model(
        nodes=[node("Expand", ("x", "shape"), "y")],
        inputs=[tensor("x", "batch", 1)],
        outputs=[tensor("y", "batch", 2**22)],
        weights={"shape": np.array([1, 2**22])},
    )
    row_bytes = 4 * 2**22

    sizes = [len(found["y"]) for found in observe(wide, ["y"], {"x": np.ones((20, 1), np.float32)})]

    assert sizes == [1, 8, 8, 3]
    assert max(sizes) * row_bytes <= BATCH_BYTES


def test_rows_are_spread_over_all_that_there_are() -> None:
    rows, chosen = spread({"x": np.arange(1000)}, 5)
    assert chosen.tolist() == rows["x"].tolist() == [0, 249, 499, 749, 999]
    assert spread({"x": np.arange(3)}, 5)[1].tolist() == [0, 1, 2]


def test_rows_that_are_not_finite_are_refused() -> None:
    rows = {"x": BODY.copy()}
    rows["x"][3, 3] = np.inf
    with pytest.raises(VariantNotBuilt, match="'x' is not finite on the calibration rows"):
        ranges(passing(), ["x"], rows, Calibration.MIN_MAX)


def test_without_rows_there_is_nothing_to_calibrate_on() -> None:
    with pytest.raises(VariantNotBuilt, match="needs calibration rows"):
        ranges(passing(), ["x"], {"x": BODY[:0]}, Calibration.ENTROPY)


def _all(proto: object, names: list[str], rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    parts = list(observe(proto, names, rows))
    return {name: np.concatenate([part[name] for part in parts]) for name in names}
