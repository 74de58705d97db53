"""Models that answer each position of a row: what builders judge them by, and what they leave."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests import onnx_models as models
from tests.onnx_models import node, tensor
from variants.builders.compression.distillation import OnnxDistilled
from variants.builders.compression.pruning import OnnxPruned
from variants.builders.compression.scores import training_targets, trial
from variants.builders.protocol import Material
from variants.builders.quantisation.sensitivity import Judge
from variants.builders.registry import make_builder
from variants.errors import VariantNotBuilt
from variants.metrics.metric import Judged, parse_metric
from variants.metrics.positions import IGNORED

WEIGHT = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
TAGS = Judged(metric=parse_metric("top1"), output="tags", along=0)
VECTORS = Judged(metric=parse_metric("r2"), output="tags", along=0)


def tagger(weight: NDArray[Any] = WEIGHT) -> Any:
    """Three scores for each of five positions, by a product with what is there."""
    return models.model(
        nodes=[node("MatMul", ("x", "weight"), "tags")],
        inputs=[tensor("x", "batch", 5, 8)],
        outputs=[tensor("tags", "batch", 5, 3)],
        weights={"weight": weight},
    )


def rows(count: int = 40) -> dict[str, NDArray[Any]]:
    return {"x": np.random.default_rng(1).normal(size=(count, 5, 8)).astype(np.float32)}


def labels(given: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """What the model says; nothing at the last two positions, and wrong at the first of half."""
    found = np.asarray((given["x"] @ WEIGHT).argmax(axis=2))
    found[:, 3:] = IGNORED
    found[::2, 0] = (found[::2, 0] + 1) % 3
    return found


def targets(given: dict[str, NDArray[Any]]) -> NDArray[Any]:
    found = np.asarray(given["x"] @ WEIGHT)
    found[:, 3:] = np.nan
    return found


def test_answers_are_counted_at_the_positions_that_are_judged() -> None:
    given = rows()
    assert Judge(tagger(), given, labels(given), TAGS).original == pytest.approx(5 / 6)
    assert Judge(tagger(), given, targets(given), VECTORS).original == pytest.approx(1.0)
    held = trial(tagger(), given, labels(given), TAGS)
    assert held is not None
    assert held.right(tagger()) == pytest.approx(5 / 6)
    assert held.right(tagger(-WEIGHT)) < 0.5


@pytest.mark.parametrize("judged", [TAGS, VECTORS])
def test_without_labels_the_models_own_answers_are_right(judged: Judged) -> None:
    judge, held = Judge(tagger(), rows(), None, judged), trial(tagger(), rows(), None, judged)
    assert held is not None
    assert judge.original == judge.share(tagger()) == held.right(tagger()) == 1.0
    assert judge.share(tagger(-WEIGHT)) == held.right(tagger(-WEIGHT)) < 0.5


def test_eight_bits_keep_the_answers(tmp_path: Path) -> None:
    given = rows()
    source = models.write(tmp_path / "tagger.onnx", tagger())
    material = Material(
        source=source, calibration=given, calibration_labels=labels(given), judged=TAGS, floor=0.8
    )
    target = tmp_path / "int8.onnx"
    make_builder("onnx-int8").build(material, target)
    assert (Judge(str(target), given, labels(given), TAGS).original or 0.0) >= 0.8


@pytest.mark.parametrize("builder", [OnnxDistilled(), OnnxPruned()])
def test_nothing_is_trained_position_by_position(builder: Any, tmp_path: Path) -> None:
    given = rows()
    source = models.write(tmp_path / "tagger.onnx", tagger())
    with pytest.raises(VariantNotBuilt, match="cannot be trained: each position of a row"):
        training_targets(tagger(), given, labels(given), limit_s=1.0, judged=TAGS)
    material = Material(
        source=source,
        calibration=given,
        calibration_labels=labels(given),
        training=given,
        training_labels=labels(given),
        teacher=source,
        judged=TAGS,
    )
    with pytest.raises(VariantNotBuilt):
        builder.build(material, tmp_path / "trained.onnx")
