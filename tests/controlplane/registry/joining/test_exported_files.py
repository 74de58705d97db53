"""Files whose exporters left out what a task has to know, registered as they are."""

import numpy as np
import pytest
from onnx import TensorProto

from tests import onnx_models as models
from tests.controlplane.registry.house import House
from variants.checks.edges import Edges
from variants.errors import Conflict
from variants.types import TensorSpec

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_sandboxes")]


def test_sizes_that_are_computed_in_the_graph_are_found_and_the_file_is_known_again(
    house: House,
) -> None:
    """Three of the four numbers of a row, as many as three quarters of it in floating point."""
    made = models.model(
        nodes=[
            models.node("MatMul", ("pixels", "weight"), "product"),
            models.node("Shape", ("pixels",), "all"),
            models.node("Cast", ("all",), "wide", to=TensorProto.FLOAT),
            models.node("Mul", ("wide", "share"), "less"),
            models.node("Cast", ("less",), "sizes", to=TensorProto.INT64),
            models.node("Reshape", ("product", "sizes"), "scores"),
        ],
        outputs=[models.tensor("scores", "rows", "classes")],
        weights={"weight": models.WEIGHT, "share": np.array([1.0, 0.75], np.float32)},
    )
    models.write(house.model, made)
    house.register(kinds=())
    snapshot = house.catalog.snapshot()
    assert snapshot.tasks[0].outputs == (TensorSpec(name="scores", dtype="float32", shape=(3,)),)
    assert [variant.accuracy for variant in snapshot.variants] == [1.0]
    with pytest.raises(Conflict, match=r"tiny\.onnx is registered already"):
        house.register(kinds=())


def test_a_value_that_is_fixed_and_rows_along_another_axis(house: House) -> None:
    made = models.model(
        inputs=[models.tensor("pixels", 4, "batch"), models.tensor("scale")],
        nodes=[
            models.node("Transpose", ("pixels",), "rows", perm=[1, 0]),
            models.node("MatMul", ("rows", "weight"), "product"),
            models.node("Mul", ("product", "scale"), "scores"),
        ],
    )
    models.write(house.model, made)
    edges = Edges(fix_inputs=(("scale", 2.0),), batch_axes=(("pixels", 1),))
    house.register(kinds=(), edges=edges)
    snapshot = house.catalog.snapshot()
    assert snapshot.tasks[0].inputs == (TensorSpec(name="pixels", dtype="float32", shape=(4,)),)
    assert [variant.accuracy for variant in snapshot.variants] == [1.0]
    with pytest.raises(Conflict, match=r"tiny\.onnx is registered already"):
        house.register(kinds=(), edges=edges)
