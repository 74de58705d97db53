"""ONNX models whose weights lie in files beside them become one file, and nothing else is read."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto

from tests import onnx_models as models
from variants.checks.onnx_check import check_model
from variants.checks.onnx_parts import has_parts, join_parts
from variants.errors import InvalidArtifact

ROWS = np.array([[1, 0, 0, 2], [0, 3, 1, 0]], dtype=np.float32)


def apart(folder: Path, **place: Any) -> Path:
    """A model whose weights are in another file, at some place of it."""
    whole = models.write(folder / "whole.onnx", models.model())
    model = onnx.load(whole)
    folder = folder / "apart"
    folder.mkdir()
    held = b"before"
    for tensor in model.graph.initializer:
        data = onnx.numpy_helper.to_array(tensor).tobytes()
        said = {"location": "m.onnx.data", "offset": len(held), "length": len(data)} | place
        held += data
        for field in ("float_data", "int64_data"):
            tensor.ClearField(field)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in said.items():
            tensor.external_data.add(key=key, value=str(value))
    (folder / "m.onnx.data").write_bytes(held)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return folder / "m.onnx"


def answer(path: Path) -> Any:
    session = onnxruntime.InferenceSession(str(path))
    return session.run(None, {session.get_inputs()[0].name: ROWS})[0]


def test_a_model_and_its_weights_become_one_file_that_answers_the_same(tmp_path: Path) -> None:
    source = apart(tmp_path)
    assert has_parts(source)
    with pytest.raises(InvalidArtifact, match="in another file, which is not beside it"):
        check_model(source)
    for name in ("one.onnx", "two.onnx"):
        join_parts(source, tmp_path / name, limit_mib=10)
    assert not has_parts(tmp_path / "one.onnx")
    assert check_model(tmp_path / "one.onnx").parameters
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "two.onnx").read_bytes()
    np.testing.assert_array_equal(answer(tmp_path / "one.onnx"), answer(tmp_path / "whole.onnx"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the exporter, as users see them
def test_what_torch_exports_is_joined(tmp_path: Path) -> None:
    import torch

    torch.onnx.export(
        torch.nn.Linear(4, 2_000).eval(),
        (torch.tensor(ROWS),),
        tmp_path / "m.onnx",
        input_names=["rows"],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        dynamo=True,
        external_data=True,
    )
    assert (tmp_path / "m.onnx.data").exists()
    expected = answer(tmp_path / "m.onnx")
    assert has_parts(tmp_path / "m.onnx")
    join_parts(tmp_path / "m.onnx", tmp_path / "one.onnx", limit_mib=10)
    (tmp_path / "m.onnx.data").unlink()
    np.testing.assert_array_equal(answer(tmp_path / "one.onnx"), expected)


def test_a_model_that_is_whole_has_no_parts(tmp_path: Path) -> None:
    path = models.write(tmp_path / "m.onnx", models.model())
    (tmp_path / "m.onnx.data").write_bytes(b"")
    assert not has_parts(path)
    assert not has_parts(tmp_path / "none.onnx")


def test_weights_behind_a_link_are_not_read(tmp_path: Path) -> None:
    """A folder of models may come from elsewhere, and a link in it lead anywhere."""
    path = apart(tmp_path)
    weights = path.with_name("m.onnx.data")
    weights.symlink_to(weights.rename(tmp_path / "elsewhere.data"))
    assert not has_parts(path)
    with pytest.raises(InvalidArtifact, match="which is a symbolic link; put the file itself"):
        join_parts(path, tmp_path / "one.onnx", limit_mib=10)


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ({"location": "../whole.onnx"}, "is no file beside it"),
        ({"location": "/etc/passwd"}, "is no file beside it"),
        ({"location": ".."}, "is no file beside it"),
        ({"location": ""}, "is no file beside it"),
        ({"location": "other.data"}, "in 'other.data', which is not beside it"),
        ({"length": 10**6}, "ends before tensor"),
        ({"length": 10**18}, "MiB with the weights beside it, more than the 10"),
        ({"offset": -4}, "has no place"),
        ({"offset": "many"}, "has no place"),
    ],
)
def test_places_that_cannot_be_are_refused(
    tmp_path: Path, place: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidArtifact, match=reason):
        join_parts(apart(tmp_path, **place), tmp_path / "one.onnx", limit_mib=10)
    assert not (tmp_path / "one.onnx").exists()
