"""Names of classes in the metadata of an ONNX file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper
from skl2onnx import to_onnx
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

from controlplane.client.exporting.sklearn_onnx import silenced
from tests import onnx_models as models
from variants.checks.class_names import KEY, LONGEST, class_names, write_class_names
from variants.checks.onnx_check import check_model
from variants.errors import InvalidArtifact


def saying(*values: str) -> object:
    made = models.model()
    for value in values:
        made.metadata_props.add(key=KEY, value=value)
    return made


def test_what_is_written_is_read() -> None:
    made = models.model()
    assert class_names("m", made) == ()
    write_class_names(made, ["a", "b, c", "\u00e4"])
    assert class_names("m", made) == ("a", "b, c", "\u00e4")


def test_names_that_take_too_much_are_not_written() -> None:
    made = models.model()
    write_class_names(made, ["a" * LONGEST])
    assert class_names("m", made) == ()


@pytest.mark.parametrize(
    "values",
    [
        ("",), ("a,b",), ("[1, 2]",), ('["a", ""]',), ('{"a": 1}',), ("[" * 100_000,),
        ('["a"]', '["b"]'), (json.dumps(["a" * LONGEST]),),
    ],
)  # fmt: skip
def test_what_is_no_list_of_names_is_refused(values: tuple[str, ...]) -> None:
    with pytest.raises(InvalidArtifact, match=r"^m: its metadata .* is no list of names$"):
        class_names("m", saying(*values))


def test_a_name_of_two_classes_is_refused() -> None:
    with pytest.raises(InvalidArtifact, match="has a name twice"):
        class_names("m", saying('["a", "a"]'))


RANDOM = np.random.default_rng(0)
CLASSES = RANDOM.integers(0, 3, 60)
ROWS: NDArray[Any] = (RANDOM.normal(size=(60, 4)) + 3 * CLASSES[:, None]).astype(np.float32)
NAMES = np.array(["ash", "beech", "oak"])[CLASSES]


def converted(classifier: Any, classes: NDArray[Any], path: Path, *, zipmap: bool = False) -> Path:
    fitted = classifier.fit(ROWS, classes)
    with silenced():
        made = to_onnx(fitted, ROWS[:1], options={"zipmap": zipmap}, target_opset=20)
    path.write_bytes(made.SerializeToString())
    return path


@pytest.mark.parametrize(
    "classifier",
    [LogisticRegression(), RandomForestClassifier(3), GaussianNB(), KNeighborsClassifier()],
    ids=lambda one: type(one).__name__,
)
def test_what_skl2onnx_has_converted_names_its_classes(tmp_path: Path, classifier: Any) -> None:
    """Some take names from an attribute, some from a constant."""
    file = converted(classifier, NAMES, tmp_path / "m.onnx")
    assert check_model(file).classes == ("ash", "beech", "oak")
    assert check_model(converted(classifier, CLASSES, tmp_path / "n.onnx")).classes == ()


def test_where_lists_of_names_differ_none_is_taken(tmp_path: Path) -> None:
    made = onnx.load(converted(GaussianNB(), NAMES, tmp_path / "m.onnx"))
    made.graph.initializer.append(helper.make_tensor("x", TensorProto.STRING, [1], [b"elm"]))
    assert class_names("m", made) == ()


@pytest.mark.parametrize(
    "wrong", [[b"ash", b"oak"], [b"ash", b"oak", b"oak"], [b"a", b"b", b"\xff"]]
)
def test_names_that_cannot_be_those_of_the_scores_are_not_taken(
    tmp_path: Path, wrong: list[bytes]
) -> None:
    made = onnx.load(converted(GaussianNB(), NAMES, tmp_path / "m.onnx"))
    for one in made.graph.initializer:
        if one.data_type == TensorProto.STRING:
            one.string_data[:] = wrong
    assert class_names("m", made) == ()


def test_of_two_classes_of_support_vectors_the_order_is_not_told(tmp_path: Path) -> None:
    """Their decisions stand in the other order, which only a run shows."""
    names = np.array(["ash", "beech"])[CLASSES % 2]
    assert check_model(converted(SVC(), names, tmp_path / "m.onnx")).classes == ()


def test_scores_as_maps_are_told_of_before_the_names_beside_them(tmp_path: Path) -> None:
    """It is what skl2onnx writes unless it is told otherwise, and the type of the other output was
    all that was said."""
    file = converted(LogisticRegression(), NAMES, tmp_path / "m.onnx", zipmap=True)
    with pytest.raises(InvalidArtifact, match=r"'output_probability' is not a tensor; .*'zipmap'"):
        check_model(file)
