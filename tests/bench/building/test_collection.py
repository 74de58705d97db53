"""The models of the bench are what they are said to be: they run, and their heads are fitted."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from tests.bench.building.collection import MODELS, make
from variants.checks.onnx_check import check_model

pytestmark = pytest.mark.slow


QUICK = ("detector", "forest")
"""The others take torch up to some tens of seconds each to export and to run by their rows."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.campaign] * (name not in QUICK)) for name in MODELS],
)
def test_a_model_of_the_collection_answers_its_rows(name: str, tmp_path: Path) -> None:
    brought = make(name, tmp_path)
    session = onnxruntime.InferenceSession(brought.path)
    found = session.run(None, brought.inputs)
    assert {len(output) for output in found} == {4}
    with np.load(brought.rows) as rows:
        assert {*brought.inputs} <= {*rows.files}
        if "targets" in rows.files:
            assert np.allclose(found[0], rows["targets"][:4], atol=1e-4)
            return
        every = {one: rows[one] for one in brought.inputs}
        scores, labels = session.run(None, every)[-1], rows["labels"]
    if name in ("forest", "boosting"):  # scores of names
        right = session.run(None, every)[0] == labels
    else:
        right = (np.argmax(scores, -1) == labels)[labels != -100]
    assert right.mean() > 0.5
    if "lengths" not in brought.options and name not in ("forest", "boosting"):
        check_model(brought.path)
