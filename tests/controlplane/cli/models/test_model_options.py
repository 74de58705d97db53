"""What options about the inputs and outputs of a model say, and what they cannot."""

from typing import Any

import pytest

from controlplane.cli.model_options.options import ModelOptions
from variants.checks.edges import Edges
from variants.errors import InvalidInput


def test_names_with_numbers_are_pairs() -> None:
    options = ModelOptions(
        axis_sizes="height=64, images:3=32", fix_inputs="sr=16000,a=b=-0.5", batch_axes="state=1"
    )
    edges = options.edges()
    assert edges == Edges(
        axis_sizes=(("height", 64), ("images:3", 32)),
        fix_inputs=(("sr", 16000.0), ("a=b", -0.5)),
        batch_axes=(("state", 1),),
    )
    assert edges
    assert not ModelOptions().edges()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fix_inputs": "sr"}, "--fix-inputs are names and numbers, such as .*, not 'sr'"),
        ({"fix_inputs": "sr=nan"}, "--fix-inputs are"),
        ({"fix_inputs": "=1"}, "--fix-inputs are"),
        ({"batch_axes": "state=one"}, "--batch-axes are names and whole numbers, such as"),
        ({"batch_axes": "state=-1"}, "--batch-axes are"),
        ({"axis_sizes": "height=6400000000"}, "--axis-sizes are names and whole numbers, such as"),
        ({"axis_sizes": "height"}, "--axis-sizes are names and whole numbers, such as 'height=640"),
    ],
)
def test_what_is_no_name_with_a_number_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        ModelOptions(**options).edges()
