"""``modelless.export`` of scikit-learn classifiers: the ONNX answers as they do, or is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import DBSCAN, KMeans
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    Perceptron,
    RidgeClassifier,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC, OneClassSVM

from controlplane.building.types import RegistrationLimits, RegistrationRequest
from controlplane.client import Exported, ExportError, export
from controlplane.client.exporting.onnx_file import OnnxAnswers
from controlplane.client.exporting.sklearn_onnx import compare
from controlplane.registry.registration import register
from profiler.sandbox.limits import MeasureLimits
from variants.artifacts.store import FileArtifactStore
from variants.catalog.memory import MemoryCatalog
from variants.checks.onnx_check import check_model
from variants.types import DeviceKind, DeviceKindName, TensorSpec

RANDOM = np.random.default_rng(0)
CENTRES = RANDOM.normal(size=(3, 4)) * 3
CLASSES = RANDOM.integers(0, 3, 120)
ROWS: NDArray[Any] = CENTRES[CLASSES] + RANDOM.normal(size=(120, 4))
NAMES = np.array(["ash", "beech", "oak"])[CLASSES]


def answers(path: Path, rows: NDArray[Any]) -> NDArray[Any]:
    session = onnxruntime.InferenceSession(path)
    (scores,) = session.run(None, {session.get_inputs()[0].name: rows.astype(np.float32)})
    assert isinstance(scores, np.ndarray)
    return scores


@pytest.mark.parametrize(
    "classifier",
    [
        make_pipeline(StandardScaler(), LogisticRegression()),
        make_pipeline(StandardScaler(), RandomForestClassifier(10, random_state=0)),
        HistGradientBoostingClassifier(max_iter=5),
        KNeighborsClassifier(),
        GaussianNB(),
        CalibratedClassifierCV(LinearSVC(), cv=2),
    ],
    ids=lambda one: type(one).__name__,
)
def test_probabilities_are_the_scores(tmp_path: Path, classifier: Any) -> None:
    classifier.fit(ROWS, NAMES)
    exported = export(classifier, ROWS, tmp_path / "trees.onnx")
    assert exported == Exported(
        path=tmp_path / "trees.onnx",
        inputs=(TensorSpec(name="features", dtype="float32", shape=(4,)),),
        outputs=(TensorSpec(name="scores", dtype="float32", shape=(3,)),),
        labels=("ash", "beech", "oak"),
        rows=120,
        different_rows=0,
        difference=exported.difference,
    )
    found = check_model(exported.path)
    assert (found.inputs, found.outputs) == (exported.inputs, exported.outputs)
    for rows in (ROWS[:1], ROWS):
        wanted = classifier.predict_proba(rows)
        np.testing.assert_allclose(answers(exported.path, rows), wanted, atol=1e-4)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    "classifier", [LinearSVC(), RidgeClassifier(), SVC(), Perceptron()], ids=str
)
def test_without_probabilities_the_predicted_class_scores_highest(
    tmp_path: Path, classifier: Any, classes: int
) -> None:
    kept = classes > CLASSES
    classifier.fit(ROWS[kept], NAMES[kept])
    exported = export(classifier, ROWS[kept].tolist(), tmp_path / "m.onnx")
    scores = answers(exported.path, ROWS[kept])
    assert scores.shape == (kept.sum(), classes)
    best = np.array(exported.labels)[scores.argmax(axis=1)]
    assert best.tolist() == classifier.predict(ROWS[kept]).tolist()


@pytest.mark.parametrize(
    ("classes", "named"),
    [(NAMES, ("ash", "beech", "oak")), (NAMES.astype(object), ("ash", "beech", "oak"))],
)
def test_names_of_classes_travel_in_the_file(
    classes: NDArray[Any], named: tuple[str, ...], tmp_path: Path
) -> None:
    file = export(GaussianNB().fit(ROWS, classes), ROWS, tmp_path / "trees.onnx").path
    assert check_model(file).classes == named


def test_classes_that_are_their_places_need_no_names(tmp_path: Path) -> None:
    file = export(GaussianNB().fit(ROWS, CLASSES), ROWS, tmp_path / "trees.onnx").path
    assert check_model(file).classes == ()


@pytest.mark.parametrize(
    ("classes", "named"),
    [(CLASSES + 1, ("1", "2", "3")), (CLASSES > 0, ("False", "True"))],
)
def test_other_numbers_are_names_or_the_first_class_would_be_called_0(
    classes: NDArray[Any], named: tuple[str, ...], tmp_path: Path
) -> None:
    file = export(GaussianNB().fit(ROWS, classes), ROWS, tmp_path / "trees.onnx").path
    assert check_model(file).classes == named


def test_a_threshold_that_a_row_lies_on_is_no_difference(tmp_path: Path) -> None:
    """Of more rows than bins, thresholds are numbers of the rows, in float64."""
    rows = RANDOM.normal(size=(300, 6))
    model = HistGradientBoostingClassifier().fit(rows, (rows[:, 0] + rows[:, 1] > 0).astype(int))
    rounded = np.abs(model.predict_proba(rows.astype(np.float32)) - model.predict_proba(rows))
    assert (rounded.max(axis=1) > 1e-3).mean() > 0.01  # scikit-learn itself
    exported = export(model, rows, tmp_path / "boosted.onnx")
    assert exported.different_rows == 0
    given = RANDOM.normal(size=(50, 6)).astype(np.float32)
    scores = OnnxAnswers(exported.path.read_bytes())({"features": given})["scores"]
    assert np.allclose(scores, model.predict_proba(given), atol=1e-5)


def test_names_are_as_they_were_given(tmp_path: Path) -> None:
    model = GaussianNB().fit(ROWS, CLASSES)
    exported = export(
        model, ROWS[0:1], tmp_path / "m.onnx", input_names=["pixels"], output_names=["classes"]
    )
    assert [spec.name for spec in (*exported.inputs, *exported.outputs)] == ["pixels", "classes"]
    assert exported.labels == ("0", "1", "2")


@pytest.mark.parametrize(
    ("model", "classes", "rows", "sentence"),
    [
        (KMeans(2, n_init=1), CLASSES, ROWS, "KMeans is no classifier; one that gives the same cl"),
        (DBSCAN(), CLASSES, ROWS, "DBSCAN is no classifier, no regressor and no transformer"),
        (
            HistGradientBoostingClassifier(max_iter=2, categorical_features=[3]),
            CLASSES,
            np.hstack([ROWS[:, :3], CLASSES[:, None]]),
            "the categorical_features of HistGradientBoostingClassifier have no ONNX form",
        ),
        (LogisticRegression(), None, ROWS, "LogisticRegression does not answer the example inputs"),
        (GaussianNB(), CLASSES, ROWS[:, :3], "GaussianNB does not answer the example"),
        (GaussianNB(), CLASSES, ROWS[0], r"example_inputs have shape \(4,\); give"),
        (GaussianNB(), CLASSES, ROWS[:0], r"example_inputs have shape \(0, 4\); give"),
        (
            GaussianNB(),
            CLASSES,
            [["a"]],
            "example_inputs are not numbers, which is all that a served model takes: could not",
        ),
        (DummyClassifier(), CLASSES, ROWS, "DummyClassifier has no ONNX form: Unable to"),
        (
            MultiOutputClassifier(GaussianNB()),
            np.stack([CLASSES, CLASSES], 1),
            ROWS,
            "MultiOutputClassifier of several labels has no ONNX form; OneVsRestClassifier, which",
        ),
        (DummyClassifier(), np.zeros(120), ROWS, "DummyClassifier knows one class only"),
    ],
)
def test_what_is_no_fitted_classifier_is_refused(
    tmp_path: Path, model: Any, classes: NDArray[Any] | None, rows: Any, sentence: str
) -> None:
    """Only here they are fitted: some start threads for it, and collecting must not."""
    if classes is not None:
        model.fit(ROWS, classes)
    with pytest.raises(ExportError, match=sentence):
        export(model, rows, tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "detector",
    [
        IsolationForest(n_estimators=10, random_state=0),
        make_pipeline(StandardScaler(), OneClassSVM(nu=0.1)),
        LocalOutlierFactor(novelty=True),
    ],
    ids=lambda one: type(one).__name__,
)
def test_an_outlier_detector_is_a_classifier(tmp_path: Path, detector: Any) -> None:
    detector.fit(ROWS)
    exported = export(detector, ROWS, tmp_path / "outliers.onnx")
    assert (exported.labels, exported.different_rows) == (("-1", "1"), 0)
    scores = answers(exported.path, ROWS)
    best = np.array([-1, 1])[scores.argmax(axis=1)]
    assert (best == detector.predict(ROWS)).mean() > 0.99
    wanted = detector.decision_function(ROWS)
    np.testing.assert_allclose(scores, np.stack([-wanted, wanted], axis=1), atol=1e-3)


def test_clusters_are_those_of_a_classifier_by_their_centres(tmp_path: Path) -> None:
    """What the refusal of a clusterer says."""
    clusters = KMeans(3, n_init=1, random_state=0).fit(ROWS)
    classifier = KNeighborsClassifier(1).fit(clusters.cluster_centers_, range(3))
    exported = export(classifier, ROWS, tmp_path / "clusters.onnx")
    assert (answers(exported.path, ROWS).argmax(axis=1) == clusters.labels_).all()


def test_several_labels_for_a_row_are_numbers(tmp_path: Path) -> None:
    labels = np.stack([CLASSES == 0, CLASSES > 1], axis=1).astype(int)
    model = OneVsRestClassifier(LogisticRegression()).fit(ROWS, labels)
    exported = export(model, ROWS, tmp_path / "tags.onnx")
    assert [(one.name, one.shape) for one in exported.outputs] == [("values", (2,))]
    found = answers(exported.path, ROWS)
    np.testing.assert_allclose(found, model.predict_proba(ROWS), atol=1e-4)


def test_numbers_too_large_for_float32_are_refused(tmp_path: Path) -> None:
    """Classes that differ in the 9th digit only are the same to a server."""
    rows = np.array([[1e8 + n] for n in range(16)])
    model = KNeighborsClassifier(1).fit(rows, np.arange(16) % 2)
    with pytest.raises(ExportError, match=r"of 16 example rows are answered otherwise once"):
        export(model, rows, tmp_path / "m.onnx")


class Contrary(GaussianNB):  # type: ignore[misc]
    """Predicts the class after the most probable one."""

    def predict(self, rows: Any) -> Any:
        return (super().predict(rows) + 1) % 3


def test_a_classifier_that_does_not_predict_its_most_probable_class_is_refused(
    tmp_path: Path,
) -> None:
    model = Contrary().fit(ROWS, CLASSES)
    with pytest.raises(ExportError, match="Contrary does not predict its most probable class for"):
        export(model, ROWS, tmp_path / "m.onnx")


@pytest.mark.parametrize(("different", "refused"), [(0, False), (2, False), (3, True)])
def test_one_row_in_a_hundred_may_differ(different: int, refused: bool, tmp_path: Path) -> None:
    rows = RANDOM.normal(size=(200, 4)).astype(np.float32)
    model = GaussianNB().fit(ROWS, CLASSES)
    onnx = export(model, ROWS, tmp_path / "m.onnx").path.read_bytes()
    wanted = model.predict_proba(rows)
    wanted[:different] += 0.01
    told = (model.predict(rows), wanted)
    given = (onnx, ("features", "scores"), rows, model.classes_, told)
    if refused:
        with pytest.raises(ExportError, match="3 of 200 example rows are answered differently"):
            compare(*given)
    else:
        found, difference = compare(*given)
        assert found == different
        assert difference < 1e-4


def test_rows_that_are_told_apart_in_float64_alone_are_refused(tmp_path: Path) -> None:
    """Both were answered alike once they were rounded, which is how nobody had fitted the model."""
    rows = RANDOM.normal(size=(200, 4))
    rows[:, 2] = 1.7e9 + 600 * RANDOM.random(200)
    late = rows[:, 2] > 1.7e9 + 300
    target, why = (
        tmp_path / "m.onnx",
        "otherwise once they are rounded to float32.* moves feature 2",
    )
    for last in (LogisticRegression(), LinearRegression()):
        with pytest.raises(ExportError, match=why):
            export(make_pipeline(StandardScaler(), last).fit(rows, late), rows, target)
    rows[:, 2] -= 1.7e9
    export(make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, late), rows, target)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_rows_that_cannot_be_asked_are_refused(wrong: float, tmp_path: Path) -> None:
    rows = ROWS.copy()
    rows[7, 2] = wrong
    model = HistGradientBoostingClassifier().fit(rows, CLASSES)
    with pytest.raises(ExportError, match=f"have {wrong} in row 7, feature 2, and queries take"):
        export(model, rows, tmp_path / "m.onnx")


def test_a_number_may_stand_for_what_is_missing(tmp_path: Path) -> None:
    rows = np.where(RANDOM.random(ROWS.shape) < 0.1, -99, ROWS).astype(np.float32)
    model = make_pipeline(SimpleImputer(missing_values=-99.0), GaussianNB()).fit(rows, CLASSES)
    exported = export(model, rows, tmp_path / "m.onnx")
    np.testing.assert_allclose(answers(exported.path, rows), model.predict_proba(rows), atol=1e-4)


@pytest.mark.parametrize("name", ["model.pt2", "model.pkl"])
def test_a_suffix_that_is_not_a_classifiers_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ExportError, match=r"is exported to a file that ends in \.onnx"):
        export(GaussianNB().fit(ROWS, CLASSES), ROWS, tmp_path / name)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"there is no such folder: '{tmp_path / 'no'}'"):
        export(GaussianNB().fit(ROWS, CLASSES), ROWS, tmp_path / "no" / "bayes.onnx")


def test_an_exported_forest_is_registered_and_counts_right(tmp_path: Path) -> None:
    forest = make_pipeline(StandardScaler(), RandomForestClassifier(10, random_state=0))
    forest.fit(ROWS[:60], CLASSES[:60])
    exported = export(forest, ROWS, tmp_path / "forest.onnx")
    rows, labels = ROWS[60:].astype(np.float32), CLASSES[60:]
    np.savez(tmp_path / "test.npz", features=rows, labels=labels)
    np.savez(tmp_path / "calibration.npz", features=ROWS[:60].astype(np.float32))
    result = register(
        RegistrationRequest(
            path=exported.path, task="trees", labels=("ash", "beech", "oak"), kinds=(),
            evaluation=tmp_path / "test.npz", calibration=tmp_path / "calibration.npz",
        ),
        MemoryCatalog(),
        FileArtifactStore(tmp_path / "store"),
        (DeviceKind(name=DeviceKindName("cpu-1"), cores=1, memory_mib=1_000.0, usd_per_hour=0.04),),
        limits=RegistrationLimits(
            measure=MeasureLimits(batch_sizes=(1, 2), point_s=0.004, min_runs=4)
        ),
    )  # fmt: skip
    (variant,) = result.variants
    assert variant.accuracy == pytest.approx((forest.predict(rows) == labels).mean(), abs=1e-9)
