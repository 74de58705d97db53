"""Names of classes in the metadata of an ONNX file."""

import json

import pytest

from tests import onnx_models as models
from variants.checks.class_names import KEY, LONGEST, class_names, write_class_names
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
