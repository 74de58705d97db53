"""scikit-learn's models in every precision that there is for their operators."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from controlplane.client.exporting.sklearn_onnx import export_classifier
from tests.variants.builders.onnx.networks import answers
from variants.builders.protocol import Material
from variants.builders.registry import make_builder

KINDS = (
    "onnx-fp16",
    "onnx-int8",
    "onnx-int8-entropy",
    "onnx-int8-percentile",
    "onnx-int8-dynamic",
)
TRAINED = 1_000


def exported(model: Any, folder: Path) -> tuple[Path, Any]:
    """A model fitted to some of the digits, as ONNX, and rows that it was not fitted to."""
    rows, labels = load_digits(return_X_y=True)
    rows = rows.astype(np.float32)
    target = folder / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        export_classifier(model.fit(rows[:TRAINED], labels[:TRAINED]), rows[:50], target)
    return target, rows[TRAINED:]


@pytest.fixture(scope="module", params=["plain", "scaled"])
def perceptron(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Any]:
    """Its biases have two axes, and ONNX infers no types behind the scaler."""
    network = MLPClassifier((64,), max_iter=15, random_state=0)
    model = network if request.param == "plain" else make_pipeline(StandardScaler(), network)
    return exported(model, tmp_path_factory.mktemp("perceptron"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_perceptron_has_variants_of_all_precisions(
    perceptron: tuple[Path, Any], kind: str, tmp_path: Path
) -> None:
    source, rows = perceptron
    target = tmp_path / "variant.onnx"

    make_builder(kind).build(Material(source=source, calibration={"features": rows[:100]}), target)

    true, found = (answers(path, {"features": rows}) for path in (source, target))
    held = {weight.data_type for weight in onnx.load(str(target)).graph.initializer}
    narrow = onnx.TensorProto.FLOAT16 if kind == "onnx-fp16" else onnx.TensorProto.INT8
    assert narrow in held
    assert np.mean(found.argmax(1) == true.argmax(1)) > 0.95


def test_halving_what_reads_votes_keeps_its_types(tmp_path: Path) -> None:
    """A support vector machine compares what an operator gives of which ONNX infers no type."""
    source, rows = exported(SVC(random_state=0), tmp_path)
    target = tmp_path / "half.onnx"

    make_builder("onnx-fp16").build(
        Material(source=source, calibration={"features": rows[:100]}), target
    )

    true, found = (answers(path, {"features": rows}) for path in (source, target))
    assert np.mean(found.argmax(1) == true.argmax(1)) > 0.95
