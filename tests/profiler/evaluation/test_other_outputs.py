"""Outputs that no metric judges, of a variant beside the model itself."""

from collections.abc import Sequence

import numpy as np
import pytest

from profiler.evaluation.other_outputs import compared, other_outputs
from tests.profiler.evaluation.test_accuracy import SCORES, Lookup, rows
from variants.errors import InvalidArtifact
from variants.metrics.scoring import is_of_score
from variants.types import TensorSpec
from workers.runtimes.protocol import Tensor

BOXES = np.random.default_rng(0).normal(loc=300, scale=20, size=(32, 4))
IDS = np.arange(100).reshape(20, 5) + 2**40


def said(given: Tensor, wanted: Tensor) -> str:
    return compared(["boxes"], [given], [wanted])


def test_what_is_rounded_is_not_told_of() -> None:
    assert said(BOXES.astype(np.float16), BOXES) == ""
    assert said(np.full((32, 1), 1 + 1e-5), np.ones((32, 1))) == ""
    assert said(np.zeros((32, 1)), np.zeros((32, 1))) == ""
    assert said(IDS, IDS) == ""


def test_what_is_a_little_apart_is_told_of_and_judged_anew_with_the_rest() -> None:
    clause = said(BOXES + 0.1 * BOXES.std(), BOXES)
    assert clause == "output 'boxes' is 10 % of its spread from the model's own"
    assert is_of_score(clause)
    other = IDS + (np.arange(5) == 0)
    clause = said(other, IDS)
    assert clause == "20 % of output 'boxes' are other numbers than the model's own"
    assert is_of_score(clause)


@pytest.mark.parametrize(
    ("given", "wanted", "why"),
    [
        (BOXES[::-1], BOXES, "output 'boxes' is 1[0-9]{2} % of its spread from the model's own"),
        (np.ones((1, 4)), BOXES[:1], "of its spread from the model's own"),
        (np.ones((32, 1)), np.zeros((32, 1)), "of its spread from the model's own"),
        (IDS + 1, IDS, "100 % of output 'boxes' are other numbers than the model's own"),
        (
            np.ones((20, 1), bool),
            np.zeros((20, 1), bool),
            "100 % of output 'boxes' are other numbers",
        ),
        (
            np.where(np.arange(5) == 0, 2**31 - 1, IDS * 0),
            np.where(np.arange(5) == 0, IDS, IDS * 0),
            "it computes whole numbers in 32 bits, and those of output 'boxes' need more",
        ),
    ],
)
def test_what_has_hardly_anything_of_the_model_s_is_refused(
    given: Tensor, wanted: Tensor, why: str
) -> None:
    with pytest.raises(InvalidArtifact, match=why):
        said(given, wanted)


def test_the_same_rows_of_all_outputs_but_the_first_are_compared() -> None:
    class Twofold(Lookup):
        def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
            return [*super().run(inputs), inputs[0] + 1]

    first = TensorSpec(name="scores", dtype="float64", shape=(3,))
    second = TensorSpec(name="second", dtype="float32", shape=(1,))
    large = TensorSpec(name="large", dtype="float32", shape=(2**21,))
    given, runtime = rows(100), Twofold(SCORES)
    (found,) = other_outputs(runtime, given, [first, second], 32)
    assert (len(found), runtime.batches) == (32, [8, 24])
    (found,) = other_outputs(runtime, given, [first, large], 32)
    assert np.array_equal(found, given[0][np.linspace(0, 99, 7).astype(int)] + 1)
    assert other_outputs(runtime, given, [first], 32) == []
