"""Registering a model that answers each position of a row: how it is judged, what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controlplane.building.doubt import doubt
from profiler.evaluation.labelled_rows import read_task_rows
from tests import onnx_models as models
from tests.controlplane.registry.house import House
from tests.onnx_models import node, tensor
from variants.buckets import bucketed_named, positions_axis
from variants.errors import Conflict, InvalidArtifact, InvalidInput
from variants.types import FollowingAxis

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_sandboxes")]

LENGTHS = [1, 2, 3, 4] * 6 + [5, 6, 7, 8] * 6
WRONG = 3
"""Of every third row one label is not what the model says."""


def tagger(**changes: Any) -> Any:
    """Its ``tags`` are its ``values`` where the mask leaves them, and ``sums`` those of a row."""
    given: dict[str, Any] = {
        "nodes": [
            node("Mul", ("values", "mask"), "tags"),
            node("ReduceSum", ("tags", "tokens_axis"), "sums", keepdims=0),
        ],
        "outputs": [tensor("tags", "batch", "tokens", 2), tensor("sums", "batch", 2)],
    } | changes
    return models.text_model(**given)


def write_rows(
    path: Path, lengths: list[int], longest: int = 8, *, scale: float = 1.0, **more: Any
) -> Path:
    """Rows of these lengths, filled up with 7, and the class of each of their positions."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, (len(lengths), longest))
    values = np.full((len(lengths), longest, 2), 7, np.float32)
    mask = np.zeros((len(lengths), longest, 1), np.float32)
    for row, length in enumerate(lengths):
        values[row, :length] = scale * np.eye(2)[labels[row, :length]]
        mask[row, :length] = 1.0
        if row % WRONG == 0:
            labels[row, 0] = 1 - labels[row, 0]
    np.savez(path, values=values, mask=mask, **({"labels": labels} | more))
    return path


class Tags(House):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.model = models.write(folder / "tagger.onnx", tagger())
        self.rows = write_rows(folder / "tags.npz", LENGTHS)

    def register(self, **changes: Any) -> Any:
        given = {"task": "tags", "pads": (("values", 7.0),), "kinds": (), "lengths": (4, 8)}
        return super().register(**(given | changes))


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Tags:
    """Registered for the lengths 4 and 8, calibrated by rows of its own; not to be changed."""
    made = Tags(tmp_path_factory.mktemp("tags"))
    typical = write_rows(made.folder / "typical.npz", [2, 3, 6], scale=2.0)
    made.register(labels=("out", "in"), calibration=typical)
    return made


def test_it_becomes_tasks_whose_outputs_are_as_long_as_their_rows(first: Tags) -> None:
    tags = bucketed_named(first.catalog.snapshot().tasks, "tags")
    assert tags is not None
    assert tags.following == (FollowingAxis(output="tags", axis=0),)
    assert [spec.shape for spec in tags.face.outputs] == [(-1, 2), (2,)]
    assert [spec.shape for spec in tags.buckets[0].outputs] == [(4, 2), (2,)]
    assert tags.face.labels == ("out", "in")
    assert {positions_axis(task) for task in (tags.face, *tags.buckets)} == {0}


def test_only_positions_of_rows_are_judged(first: Tags) -> None:
    found = {one.task: one for one in first.catalog.snapshot().variants}
    short = [length for length in LENGTHS if length <= 4]
    wrong = {"tags.4": len(short) / WRONG, "tags.8": len(LENGTHS) / WRONG}
    positions = {"tags.4": sum(short), "tags.8": sum(LENGTHS)}
    for task, variant in found.items():
        assert variant.accuracy == pytest.approx(1 - wrong[task] / positions[task], abs=1e-9)
        assert variant.agreement == 1.0
    # By rows, as an interval from so many positions would be too narrow.
    assert {task: one.accuracy_rows for task, one in found.items()} == {"tags.4": 24, "tags.8": 48}


def test_who_is_no_better_than_one_label_everywhere_is_told(first: Tags, tmp_path: Path) -> None:
    task = first.catalog.snapshot().tasks[0]
    (variant, *_) = (one for one in first.catalog.snapshot().variants if one.task == task.name)
    ones = np.ones((24, 4), np.int64)
    rows = read_task_rows(write_rows(tmp_path / "ones.npz", [1, 2, 3, 4] * 6, 4, labels=ones), task)
    said = doubt("tagger-v1", task, [variant], rows)
    assert said.startswith("tagger-v1 of tags.4 is right in ")
    assert "% of the positions, and always saying the most frequent label" in said


def test_a_later_version_may_give_more_of_the_same_length(first: Tags, tmp_path: Path) -> None:
    known: Any = Tags.like(first, tmp_path)
    more = tagger(
        outputs=[
            tensor("tags", "batch", "tokens", 2),
            tensor("sums", "batch", 2),
            tensor("again", "batch", "tokens", 2),
        ],
        nodes=[
            node("Mul", ("values", "mask"), "tags"),
            node("ReduceSum", ("tags", "tokens_axis"), "sums", keepdims=0),
            node("Identity", ("tags",), "again"),
        ],
    )
    path = models.write(tmp_path / "more.onnx", more)
    result = known.register(path=path, lengths=None, model="tagger")
    assert [(one.task, one.version) for one in result.versions] == [("tags.4", 2), ("tags.8", 2)]
    whole = tagger(
        nodes=[
            node("Mul", ("values", "mask"), "kept"),
            node("ReduceSum", ("kept", "tokens_axis"), "sums", keepdims=0),
            node("Identity", ("sums",), "tags"),
        ],
        outputs=[tensor("tags", "batch", 2), tensor("sums", "batch", 2)],
    )
    with pytest.raises(InvalidArtifact, match=r"output 'tags' is float32 \[batch, 2\], but task"):
        known.register(path=models.write(tmp_path / "whole.onnx", whole), lengths=None)


def test_vectors_of_positions_are_judged_by_their_targets(tmp_path: Path) -> None:
    house = Tags(tmp_path)
    targets = np.random.default_rng(1).normal(size=(48, 8, 2)).astype(np.float32)
    with np.load(house.rows) as rows:
        inside = rows["mask"][:, :, 0] == 1
        values = np.where(inside[:, :, None], rows["values"] + 1, 0)
        targets[inside] = values[inside]
        np.savez(tmp_path / "vectors.npz", values=values, mask=rows["mask"], targets=targets)
    house.register(
        metric="cosine", evaluation=tmp_path / "vectors.npz", pads=(), kinds=("onnx-fp16",)
    )
    variants = house.catalog.snapshot().variants
    assert {one.name for one in variants} >= {"tagger-v1-onnx-fp32"}
    for one in variants:
        assert one.accuracy == pytest.approx(1.0, abs=1e-5), one


@pytest.mark.parametrize(
    ("changes", "error", "why"),
    [
        ({"labels": ("a", "b", "c")}, InvalidInput, "3 labels .* 'tags' .* has 2 classes"),
        ({"metric": "r2"}, InvalidArtifact, "lacks the array 'targets'"),
    ],
)
def test_what_does_not_fit_positions_is_refused(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], why: str
) -> None:
    house = Tags(tmp_path)
    with pytest.raises(error, match=why):
        house.register(**changes)
    house.assert_untouched()


def test_labels_of_whole_rows_are_refused_with_what_is_wanted(tmp_path: Path) -> None:
    house = Tags(tmp_path)
    rows = write_rows(tmp_path / "whole.npz", LENGTHS, labels=np.zeros(48, np.int64))
    with pytest.raises(InvalidArtifact, match=r"not \(rows, 4\): a label for each position"):
        house.register(evaluation=rows)
    house.assert_untouched()


def test_classes_that_stand_before_the_positions_are_refused(tmp_path: Path) -> None:
    house = Tags(tmp_path)
    turned = tagger(
        nodes=[
            node("Mul", ("values", "mask"), "kept"),
            node("Transpose", ("kept",), "tags", perm=[0, 2, 1]),
        ],
        outputs=[tensor("tags", "batch", 2, "tokens")],
    )
    with pytest.raises(InvalidArtifact, match=r"scores, float \[batch, positions, classes\], but"):
        house.register(path=models.write(tmp_path / "turned.onnx", turned))
    house.assert_untouched()


def test_the_same_again_is_a_conflict(first: Tags, tmp_path: Path) -> None:
    known: Any = Tags.like(first, tmp_path)
    with pytest.raises(Conflict, match="registered already"):
        known.register()


def test_outputs_that_are_a_part_of_the_rows(tmp_path: Path) -> None:
    house = Tags(tmp_path)
    kernel = np.zeros((2, 2, 3), np.float32)
    kernel[0, 0, 1:] = kernel[1, 1, 1:] = 1.0  # of each two frames, or one alone at the end
    speech = models.model(
        inputs=[tensor("values", "batch", 2, "frames")],
        nodes=[
            node("Conv", ("values", "kernel"), "turned", strides=[2], pads=[1, 1]),
            node("Transpose", ("turned",), "tags", perm=[0, 2, 1]),
        ],
        outputs=[tensor("tags", "batch", "steps", 2)],
        weights={"kernel": kernel},
    )
    draw = np.random.default_rng(0)
    lengths = [length for length in range(1, 9) for _ in range(6)]
    values = np.zeros((len(lengths), 2, 8), np.float32)
    labels = np.full((len(lengths), 4), 9)
    for row, length in enumerate(lengths):
        own = draw.integers(0, 2, (length + 1) // 2)
        labels[row, : len(own)] = own
        values[row, :, :length] = np.repeat(np.eye(2)[own], 2, axis=0)[:length].T
    np.savez(house.rows, values=values, labels=labels)
    path = models.write(tmp_path / "speech.onnx", speech)
    kinds = ("onnx-fp32-open",)
    result = house.register(path=path, pads=(), lengths=(4, 8), kinds=kinds)
    tags = bucketed_named(house.catalog.snapshot().tasks, "tags")
    assert tags is not None
    assert tags.following == (FollowingAxis(output="tags", axis=0, step=2, offset=1),)
    assert [one.outputs[0].shape for one in tags.buckets] == [(2, 2), (4, 2)]
    assert [(one.name, one.accuracy) for one in result.variants] == [
        (f"speech-v1-{kind}", 1.0) for _ in (4, 8) for kind in ("onnx-fp32", *kinds)
    ]
    # A length more, which is one step long, is one of the same kind.
    house.register(path=path, pads=(), lengths=(2,))
    assert house.catalog.snapshot().tasks[0].outputs[0].shape == (1, 2)
