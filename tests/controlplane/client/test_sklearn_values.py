"""``modelless.export`` of scikit-learn regressors and transformers, held against their answers."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeRegressor

from controlplane.client import Exported, ExportError, export
from controlplane.client.exporting.sklearn_values import compare
from variants.checks.onnx_check import check_model
from variants.types import TensorSpec

ROWS, TARGETS = load_diabetes(return_X_y=True)
BOTH = np.stack([TARGETS, -2.0 * TARGETS], axis=1)


def answers(path: Path, rows: NDArray[Any]) -> NDArray[Any]:
    session = onnxruntime.InferenceSession(path)
    (values,) = session.run(None, {session.get_inputs()[0].name: rows.astype(np.float32)})
    assert isinstance(values, np.ndarray)
    return values


def network() -> MLPRegressor:
    return MLPRegressor(hidden_layer_sizes=(8,), solver="lbfgs", max_iter=20, random_state=0)


REGRESSORS = [
    LinearRegression(),
    Ridge(0.1),
    RandomForestRegressor(10, max_depth=6, random_state=0),
    GradientBoostingRegressor(n_estimators=20, random_state=0),
    DecisionTreeRegressor(max_depth=4, random_state=0),
    network(),
    SVR(C=100.0),
    make_pipeline(StandardScaler(), SVR(C=100.0)),
    make_pipeline(StandardScaler(), PCA(4), Ridge()),
]


@pytest.mark.parametrize("model", REGRESSORS, ids=lambda one: type(one).__name__)
@pytest.mark.filterwarnings("ignore:lbfgs failed to converge:sklearn.exceptions.ConvergenceWarning")
def test_a_regressor_gives_its_predictions(tmp_path: Path, model: Any) -> None:
    model.fit(ROWS, TARGETS)
    exported = export(model, ROWS, tmp_path / "m.onnx")
    assert exported == Exported(
        path=tmp_path / "m.onnx",
        inputs=(TensorSpec(name="features", dtype="float32", shape=(10,)),),
        outputs=(TensorSpec(name="values", dtype="float32", shape=(1,)),),
        rows=442,
        different_rows=exported.different_rows,
        difference=exported.difference,
    )
    assert exported.different_rows <= 4
    found = check_model(exported.path)
    assert (found.inputs, found.outputs) == (exported.inputs, exported.outputs)
    for rows in (ROWS[:1], ROWS):
        given = answers(exported.path, rows)
        assert given.shape == (len(rows), 1)
        wanted = model.predict(rows.astype(np.float32))
        assert np.isclose(given[:, 0], wanted, rtol=1e-3).mean() >= 0.99


@pytest.mark.parametrize(
    "model",
    [Ridge(), RandomForestRegressor(5, random_state=0), MultiOutputRegressor(Ridge()), network()],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.filterwarnings("ignore:lbfgs failed to converge:sklearn.exceptions.ConvergenceWarning")
def test_of_several_targets_there_is_a_number_each(tmp_path: Path, model: Any) -> None:
    model.fit(ROWS, BOTH)
    exported = export(model, ROWS, tmp_path / "m.onnx")
    assert exported.outputs == (TensorSpec(name="values", dtype="float32", shape=(2,)),)
    wanted = model.predict(ROWS.astype(np.float32))
    assert np.isclose(answers(exported.path, ROWS), wanted, rtol=1e-3).mean() >= 0.99


@pytest.mark.parametrize(
    ("model", "width"),
    [
        (PCA(3), 3),
        (PCA(3, whiten=True), 3),
        (TruncatedSVD(2), 2),
        (make_pipeline(StandardScaler(), PCA(5)), 5),
        (StandardScaler(), 10),
        (SelectKBest(k=4), 4),
    ],
    ids=str,
)
def test_a_transformer_gives_its_vectors(tmp_path: Path, model: Any, width: int) -> None:
    model.fit(ROWS, TARGETS)
    exported = export(model, ROWS, tmp_path / "m.onnx", output_names=["vector"])
    assert exported.outputs == (TensorSpec(name="vector", dtype="float32", shape=(width,)),)
    assert (exported.labels, exported.different_rows) == ((), 0)
    given = answers(exported.path, ROWS)
    np.testing.assert_allclose(given, model.transform(ROWS), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "targets", "rows", "sentence"),
    [
        (KMeans(2, n_init=1), TARGETS, ROWS, "KMeans is no classifier; one that gives the same cl"),
        (Ridge(), None, ROWS, "Ridge does not answer the example inputs: This Ridge instance is"),
        (PCA(2), TARGETS, ROWS[:, :3], "PCA does not answer the example inputs: X has 3 features"),
        (DummyRegressor(), TARGETS, ROWS, "DummyRegressor has no ONNX form: Unable to"),
        (
            TransformedTargetRegressor(Ridge(), func=np.log, inverse_func=np.exp),
            TARGETS,
            ROWS,
            "TransformedTargetRegressor has no ONNX form: ",
        ),
        (
            FunctionTransformer(lambda rows: rows.astype(str)),
            TARGETS,
            ROWS,
            r"FunctionTransformer gives <U\d+ \(442, 10\) for 442 rows; it has to give numbers",
        ),
        (
            FunctionTransformer(lambda rows: rows / 0.0),
            TARGETS,
            ROWS,
            "FunctionTransformer gives numbers that are not finite for the example inputs",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:.* encountered in divide:RuntimeWarning")
def test_what_gives_no_numbers_is_refused(
    tmp_path: Path, model: Any, targets: NDArray[Any] | None, rows: Any, sentence: str
) -> None:
    """Only here they are fitted: some start threads for it, and collecting must not."""
    if targets is not None:
        model.fit(ROWS, targets)
    with pytest.raises(ExportError, match=sentence):
        export(model, rows, tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


def test_numbers_too_large_for_float32_are_refused(tmp_path: Path) -> None:
    """Rows that differ in the 9th digit only are the same to a server."""
    rows = np.array([[1e8 + n] for n in range(16)])
    model = KNeighborsRegressor(1).fit(rows, np.arange(16) % 2)
    with pytest.raises(ExportError, match=r"of 16 example rows are answered otherwise once"):
        export(model, rows, tmp_path / "m.onnx")


def test_another_model_is_found_out(tmp_path: Path) -> None:
    model = Ridge().fit(ROWS, TARGETS)
    export(model, ROWS, tmp_path / "m.onnx")
    rows = ROWS.astype(np.float32)
    file, names = (tmp_path / "m.onnx").read_bytes(), ("features", "values")
    wanted = model.predict(rows)[:, None]
    assert compare(file, names, rows, wanted)[0] == 0
    with pytest.raises(ExportError, match="in float32, 442 of 442 example rows are answered"):
        compare(file, names, rows, wanted * 1.1)
    with pytest.raises(ExportError, match=r"gives \(442, 1\), and the model \(442, 2\)"):
        compare(file, names, rows, np.concatenate([wanted, wanted], axis=1))
