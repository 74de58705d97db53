"""Registering what is no classifier: regressors, encoders, and models with several outputs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from onnx import TensorProto
from skl2onnx import to_onnx
from sklearn.datasets import load_diabetes, load_digits
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from controlplane.building.types import RegistrationRequest, RegistrationResult
from controlplane.client import export
from controlplane.registry.extension import extend
from tests import onnx_models as models
from tests.controlplane.registry.house import CPU, QUICK, House
from variants.checks.edges import Edges
from variants.errors import Conflict, InvalidArtifact, InvalidInput
from variants.types import Task, TensorSpec

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_sandboxes")]

Array = NDArray[Any]


def halves(rows: Array, truth: Array) -> tuple[Array, Array, Array, Array]:
    """Rows to train on with their truth, then held-out ones: every second one each."""
    rows = rows.astype(np.float32)
    return rows[::2], truth[::2], rows[1::2], truth[1::2]


def written(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def only_task(house: House) -> Task:
    (task,) = house.catalog.snapshot().tasks
    return task


def network(*layers: nn.Module, rows: Array, targets: Array, steps: int = 150) -> nn.Module:
    """Layers trained to give the targets, with the squared error."""
    torch.manual_seed(0)
    made = nn.Sequential(*layers)
    for layer in made:
        if isinstance(layer, nn.Linear):
            layer.reset_parameters()
    given, wanted = torch.tensor(rows), torch.tensor(targets.astype(np.float32))
    optimizer = torch.optim.Adam(made.parameters(), lr=0.01)
    for _ in range(steps):
        loss = nn.functional.mse_loss(made(given), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return made.eval()


def test_a_regressor_of_scikit_learn_is_registered_by_its_r2(house: House) -> None:
    rows, targets, held_out, truth = halves(*load_diabetes(return_X_y=True))
    model = GradientBoostingRegressor(n_estimators=30, max_depth=2, random_state=0)
    model.fit(rows, targets)
    file = export(model, rows, house.folder / "trees.onnx").path
    evaluation = written(house.folder / "held_out.npz", features=held_out, targets=truth)
    calibration = written(house.folder / "typical.npz", features=rows)
    result = house.register(
        path=file, task="progression", evaluation=evaluation, calibration=calibration, metric="r2"
    )
    task = only_task(house)
    assert (task.metric, task.labels) == ("r2", ())
    assert task.outputs == (TensorSpec(name="values", dtype="float32", shape=(1,)),)
    fp32 = house.catalog.snapshot().variants[0]
    assert fp32.accuracy == pytest.approx(r2_score(truth, model.predict(held_out)), abs=1e-4)
    assert (fp32.accuracy_rows, fp32.agreement, fp32.note) == (len(truth), 1.0, "")
    assert [one.name for one in result.skipped] == ["trees-v1-onnx-int8"]
    assert result.skipped[0].reason == "the model has nothing that can be quantised"
    assert result.doubts == ()


@pytest.fixture(scope="module")
def diabetes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A network that gives the progression, and a risk beside it: its file, held-out rows, and
    rows that it was trained on."""
    folder = tmp_path_factory.mktemp("diabetes")
    rows, targets, held_out, truth = halves(*load_diabetes(return_X_y=True))
    body = network(
        nn.BatchNorm1d(10), nn.Linear(10, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(),
        nn.Linear(128, 1), rows=rows, targets=targets[:, None] / 100,
    )  # fmt: skip

    class Progression(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.body = body

        def forward(self, features: torch.Tensor) -> dict[str, torch.Tensor]:
            progression = 100 * self.body(features)[:, 0]
            risks = torch.sigmoid(torch.stack([progression - 100, progression - 200], 1) / 50)
            return {"progression": progression, "risks": risks.reshape(-1, 2, 1)}

    export(Progression().eval(), torch.tensor(rows), folder / "net.pt2")
    return (
        folder / "net.pt2",
        written(folder / "held_out.npz", features=held_out, targets=truth),
        written(folder / "training.npz", features=rows, targets=targets),
    )


def register_network(
    house: House, diabetes: tuple[Path, Path, Path], **changes: Any
) -> RegistrationResult:
    model, evaluation, _ = diabetes
    given = {"path": model, "task": "progression", "evaluation": evaluation, "metric": "within:75"}
    return house.register(**(given | changes))


KINDS = (
    "onnx-fp16", "onnx-int8", "onnx-int8-dynamic", "onnx-fp32-lowrank", "onnx-fp32-pruned",
    "openvino-fp32", "torch-fp32",
)  # fmt: skip


@pytest.mark.campaign
def test_all_kinds_of_variants_are_built_of_a_regressor_with_two_outputs(
    house: House, diabetes: tuple[Path, Path, Path]
) -> None:
    roomy = replace(QUICK, trial=replace(QUICK.trial, memory_mib=4_000))
    result = register_network(house, diabetes, training=diabetes[2], kinds=KINDS, limits=roomy)
    task = only_task(house)
    outputs = [(spec.name, spec.shape) for spec in task.outputs]
    assert outputs == [("progression", ()), ("risks", (2, 1))]
    assert task.metric == "within:75"
    built = {one.name.removeprefix("net-v1-"): one for one in result.variants}
    reasons = {one.name: one.reason for one in result.skipped}
    assert len(built) + len(reasons) == 1 + len(KINDS)
    assert {"onnx-fp32", "onnx-int8", "onnx-int8-dynamic", "onnx-fp32-pruned"} <= built.keys(), (
        reasons
    )
    assert built["onnx-fp32"].accuracy > 0.6
    assert all(abs(one.accuracy - built["onnx-fp32"].accuracy) < 0.15 for one in built.values())
    assert all((one.agreement or 0) > 0.8 for one in built.values())


def test_an_encoder_of_scikit_learn_is_judged_by_labels(house: House) -> None:
    rows, _, held_out, labels = halves(*load_digits(return_X_y=True))
    encoder = make_pipeline(StandardScaler(), PCA(16, random_state=0)).fit(rows)
    file = export(encoder, rows, house.folder / "pca.onnx").path
    evaluation = written(house.folder / "held_out.npz", features=held_out, labels=labels)
    result = house.register(
        path=file, task="likeness", evaluation=evaluation, metric="nearest", kinds=()
    )
    task = only_task(house)
    assert (task.metric, task.labels) == ("nearest", ())
    assert task.outputs[0].shape == (16,)
    assert 0.9 < result.variants[0].accuracy < 1.0
    assert result.doubts == ()


def test_an_encoder_with_targets_is_judged_by_their_directions(house: House) -> None:
    rows, labels, held_out, truth = halves(*load_digits(return_X_y=True))
    codes = np.eye(10, dtype=np.float32) - 0.1
    body = network(
        nn.BatchNorm1d(64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10), rows=rows,
        targets=codes[labels],
    )  # fmt: skip
    export(body, torch.tensor(rows), house.folder / "net.pt2", input_names=["pixels"])
    result = house.register(
        path=house.folder / "net.pt2", task="codes", metric="cosine",
        evaluation=written(house.folder / "a.npz", pixels=held_out, targets=codes[truth]),
    )  # fmt: skip
    assert [v.name for v in result.variants] == ["net-v1-onnx-fp32", "net-v1-onnx-int8"]
    fp32, int8 = result.variants
    assert 0.8 < fp32.accuracy < 1.0
    assert abs(int8.accuracy - fp32.accuracy) < 0.02
    assert int8.agreement is not None
    assert int8.agreement > 0.5


@pytest.mark.campaign
def test_a_regressor_gets_more_variants_later_and_is_repaired_with_its_rows(
    house: House, diabetes: tuple[Path, Path, Path]
) -> None:
    register_network(house, diabetes, kinds=())
    request = RegistrationRequest(
        path=diabetes[0], task="progression", evaluation=diabetes[1], kinds=("onnx-int8",)
    )
    extend(request, "net", None, house.catalog, house.store, (CPU,), limits=QUICK)
    fp32, int8 = house.catalog.snapshot().variants
    assert (int8.name, int8.accuracy_rows) == ("net-v1-onnx-int8", fp32.accuracy_rows)
    assert int8.agreement is not None
    assert int8.agreement > 0.8
    house.store.delete(int8.artifact)
    repaired = register_network(house, diabetes).repaired
    assert repaired == (
        "progression/net-v1-onnx-int8: rebuilt from its source, the same to the byte",
    )
    assert int8.artifact in house.store.digests()


def test_a_model_that_is_worse_than_the_mean_counts_0_and_is_doubted(house: House) -> None:
    rows = models.rows()["pixels"]
    targets = -10.0 * np.arange(30 * 3).reshape(30, 3)
    result = house.register(
        task="numbers", metric="r2", kinds=(),
        evaluation=written(house.folder / "a.npz", pixels=rows, targets=targets),
    )  # fmt: skip
    (only,) = result.variants
    assert only.accuracy == 0.0
    assert only.note.startswith("R² is -")
    assert result.doubts == (
        "the accuracy of tiny-v1 by r2 is 0.00 %, and always answering the same would have 0.00 %:"
        " are the targets those of its rows, in their order?",
    )


def test_a_second_model_joins_by_the_same_metric_however_it_is_written(house: House) -> None:
    rows = models.rows()["pixels"]
    given = {
        "task": "numbers",
        "kinds": (),
        "evaluation": written(house.folder / "a.npz", pixels=rows, targets=np.ones((30, 3))),
    }
    house.register(metric="within:100.0%", **given)
    assert only_task(house).metric == "within:100%"
    other = models.write(
        house.folder / "b.onnx", models.model(weights={"weight": models.WEIGHT * 2})
    )
    house.register(path=other, metric="within:1e2%", **given)
    third = models.write(
        house.folder / "c.onnx", models.model(weights={"weight": models.WEIGHT * 3})
    )
    with pytest.raises(Conflict, match="task 'numbers' exists with another metric, which stays"):
        house.register(path=third, metric="within:100", **given)


@pytest.mark.parametrize(
    ("changes", "arrays", "error", "sentence"),
    [
        ({}, {"labels": np.zeros(30)}, InvalidArtifact,
         "a.npz lacks the array 'targets'; it has labels, pixels, and the metric r2 judges by the "
         "right first output of each row"),
        ({}, {"targets": np.ones((30, 2))}, InvalidArtifact,
         "a.npz: array 'targets' has shape (30, 2), not (rows, 3), that of output 'scores'"),
        pytest.param({}, {"targets": np.ones(30)}, InvalidArtifact,
         "a.npz: array 'targets' has shape (30,), not (rows, 3), that of output 'scores'",
         marks=pytest.mark.campaign),
        pytest.param({}, {"targets": np.full((30, 3), np.inf)}, InvalidArtifact,
         "a.npz: array 'targets' is not finite in row 0",
         marks=pytest.mark.campaign),
        pytest.param({}, {"targets": np.full((30, 3), "1")}, InvalidArtifact,
         "a.npz: array 'targets' has type <U1, and the model takes float32",
         marks=pytest.mark.campaign),
        pytest.param({}, {"targets": np.ones((29, 3))}, InvalidArtifact,
         "a.npz: its arrays differ in their number of rows: pixels 30, targets 29",
         marks=pytest.mark.campaign),
        ({"metric": "cosine"}, {"targets": np.eye(30, 3)}, InvalidArtifact,
         "a.npz: array 'targets' is all zeros in row 3: such a vector has no direction, and the "
         "metric cosine compares directions"),
        ({"metric": "nearest"}, {"targets": np.ones((30, 3))}, InvalidArtifact,
         "a.npz lacks the array 'labels'; it has pixels, targets"),
        pytest.param({"metric": "nearest"}, {"labels": np.ones(30)}, InvalidArtifact,
         "a.npz: array 'labels' has type float64; labels are integers, from 0",
         marks=pytest.mark.campaign),
        ({"metric": "within"}, {}, InvalidInput, "metric 'within' needs a positive tolerance"),
        ({"labels": ("a", "b", "c")}, {}, InvalidInput,
         "labels name the classes of a classifier; a task of the metric r2 has none"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_metric_gets_one_sentence_and_leaves_nothing(
    house: House, changes: dict[str, Any], arrays: dict[str, Array], error: type, sentence: str
) -> None:
    evaluation = written(house.folder / "a.npz", pixels=models.rows()["pixels"], **arrays)
    given = {"task": "numbers", "metric": "r2", "evaluation": evaluation, "kinds": ()}
    with pytest.raises(error) as refusal:
        house.register(**(given | changes))
    assert sentence in str(refusal.value)
    house.assert_untouched()


@pytest.mark.parametrize("names", [None, ("a", "b", "c")], ids=["numbers", "names"])
def test_the_class_that_skl2onnx_writes_before_the_scores_is_left_out(
    house: House, names: tuple[str, ...] | None
) -> None:
    rows, truth = models.rows()["pixels"], models.rows()["labels"]
    if names is not None:
        truth = np.array(names)[truth]
    trained = LogisticRegression().fit(rows, truth)
    path = house.folder / "net.onnx"
    path.write_bytes(to_onnx(trained, rows[:1], options={"zipmap": False}).SerializeToString())
    evaluation = written(house.folder / "rows.npz", X=rows, labels=truth)

    result = house.register(path=path, evaluation=evaluation, labels=names, kinds=())

    scores = TensorSpec(name="probabilities", dtype="float32", shape=(3,))
    assert only_task(house).outputs == (scores,)
    assert result.variants[0].accuracy > 0.8


def test_what_stands_behind_a_class_is_quantised_and_answers(house: House) -> None:
    nodes = [
        models.node("MatMul", ("pixels", "weight"), "scores"),
        models.node("ArgMax", ("scores",), "class", axis=1, keepdims=0),
    ]
    outputs = [
        models.tensor("class", "batch", kind=TensorProto.INT64),
        models.tensor("scores", "batch", 3),
    ]
    house.register(path=models.write(house.model, models.model(nodes=nodes, outputs=outputs)))
    assert [spec.name for spec in only_task(house).outputs] == ["scores"]
    assert [variant.accuracy for variant in house.catalog.snapshot().variants] == [1.0, 1.0]


def test_scores_that_are_not_the_first_output_can_be_put_first(house: House) -> None:
    nodes = [
        models.node("MatMul", ("pixels", "weight"), "scores"),
        models.node("ReduceMax", ("scores", "axis"), "sure"),
    ]
    outputs = [models.tensor("sure", "batch", 1), models.tensor("scores", "batch", 3)]
    weights = {"weight": models.WEIGHT, "axis": np.array([1])}
    made = models.model(nodes=nodes, outputs=outputs, weights=weights)
    models.write(house.model, made)
    with pytest.raises(
        InvalidArtifact,
        match=r"is float32 \[batch, 1\]; .*: of one probability a row, within:0.499 with 0 and 1"
        r" as targets; --keep-outputs NAMES puts another output first$",
    ):
        house.register()
    house.register(kinds=(), edges=Edges(keep_outputs=("scores",)))
    assert [spec.name for spec in only_task(house).outputs] == ["scores"]
    assert [variant.accuracy for variant in house.catalog.snapshot().variants] == [1.0]


@pytest.mark.campaign
def test_a_classifier_is_refused_as_ever_and_told_of_other_metrics(
    house: House, diabetes: tuple[Path, Path, Path]
) -> None:
    with pytest.raises(InvalidArtifact) as refusal:
        register_network(house, diabetes, metric=None)
    assert refusal.value.message == (
        "net.pt2: its first output must be scores, float [batch, classes], but is float32 [batch]; "
        "--metric within:T, r2, cosine or nearest judges other models: of one probability a row, "
        "within:0.499 with 0 and 1 as targets"
    )
    house.assert_untouched()
