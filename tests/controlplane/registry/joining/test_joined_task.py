"""The classes of a task, by what is asked and by what the model says of its own."""

from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.building.types import RegistrationRequest
from controlplane.registry.joined_task import joined_task, other_classes
from variants.checks.onnx_check import OnnxInfo
from variants.errors import Conflict, InvalidArtifact, InvalidInput
from variants.types import Task, TensorSpec

CLASSES = ("ash", "beech", "oak")
TURNED = ("oak", "beech", "ash")


def model(*classes: str) -> OnnxInfo:
    return OnnxInfo(
        inputs=(TensorSpec(name="x", dtype="float32", shape=(4,)),),
        outputs=(TensorSpec(name="scores", dtype="float32", shape=(3,)),),
        opset=20,
        parameters=12,
        size_bytes=100,
        classes=classes,
    )


def joined(
    info: OnnxInfo,
    labels: tuple[str, ...] | None = None,
    known: Task | None = None,
    metric: str | None = None,
) -> Task:
    request = RegistrationRequest(
        path=Path("m.onnx"), task="trees", evaluation=Path("r.npz"), labels=labels, metric=metric
    )
    return joined_task(request, info, known, where="m.onnx")


def test_a_new_task_has_the_classes_that_its_model_names() -> None:
    assert joined(model(*CLASSES)).labels == CLASSES
    assert joined(model()).labels == ()


def test_names_that_are_given_win_unless_they_are_the_same_in_another_order() -> None:
    """Each answer would have the name of another class."""
    told = ("Fraxinus", "Fagus", "Quercus")
    assert joined(model(*CLASSES), told).labels == told
    assert joined(model(*CLASSES), CLASSES).labels == CLASSES
    with pytest.raises(InvalidInput, match="has its classes in another order than the labels"):
        joined(model(*CLASSES), TURNED)


def test_a_later_model_with_its_classes_in_another_order_is_refused() -> None:
    task = joined(model(*CLASSES))
    assert joined(model(*CLASSES), known=task) == task
    assert joined(model(), known=task) == task
    assert joined(model("a", "b", "c"), known=task) == task
    with pytest.raises(Conflict, match="its scores are of oak, beech, ash, in this order"):
        joined(model(*TURNED), known=task)


def test_a_later_model_that_has_one_of_the_classes_at_another_place_is_refused() -> None:
    task = joined(model(*CLASSES))
    with pytest.raises(Conflict, match="its scores are of beech, elm, oak, in this order"):
        joined(model("beech", "elm", "oak"), known=task)


def test_a_later_model_with_one_other_class_is_told_of() -> None:
    """It may only be spelled otherwise, so it is registered; answers have the task's names."""
    task = joined(model(*CLASSES))
    other = model("ash", "elm", "oak")
    assert joined(other, known=task) == task
    assert other_classes(other, task, "m.onnx") == (
        "m.onnx calls the class 'elm' that task 'trees' calls 'beech': answers have the task's"
        " names, so a model of other classes is one for another task"
    )
    two = other_classes(model("ash", "elm", "fir"), task, "m.onnx")
    assert "calls 'beech', and so for 1 other: answers" in two
    for same in (model(), model(*CLASSES), model("a", "b", "c")):
        assert other_classes(same, task, "m.onnx") == ""


def test_names_of_as_many_classes_as_there_are_not_are_refused() -> None:
    with pytest.raises(InvalidInput, match="2 labels were given, but output 'scores'"):
        joined(model("ash", "oak"))


def test_a_name_that_no_label_can_be_is_refused_before_anything_is_measured() -> None:
    with pytest.raises(InvalidInput, match="label 2 has a line break or another control character"):
        joined(model("ash", "be\0ech", "oak"))


def test_what_counts_no_classes_has_no_names_of_them() -> None:
    assert joined(model(*CLASSES), metric="r2").labels == ()


def test_labels_of_a_task_that_has_none_are_given_by_another_command() -> None:
    """Rows with names asked for --labels, and --labels was refused with no way out."""
    task = joined(model())
    with pytest.raises(Conflict, match="`modelless tasks label trees` names them"):
        joined(model(), CLASSES, known=task)


def test_an_output_with_other_rows_than_come_in_is_refused_where_the_task_has_it() -> None:
    boxes = TensorSpec(name="boxes", dtype="float32", shape=(4,))
    detector = replace(model(), outputs=(*model().outputs, boxes), uneven=("boxes",))
    with pytest.raises(
        InvalidArtifact, match=r"m\.onnx: output 'boxes' has another number of rows"
    ):
        joined(detector)
    assert joined(detector, known=joined(model())) == joined(model())
