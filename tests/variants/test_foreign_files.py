"""Files and folders of other tools: each refusal says what it is, and the way to one that works."""

import io
import json
import lzma
import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import joblib  # type: ignore[import-untyped]
import numpy as np
import onnxruntime
import pytest
import torch

from variants.checks.onnx_check import check_model
from variants.checks.onnx_file import parse_model
from variants.errors import InvalidArtifact
from variants.model_files import find_model_files


def zipped(members: Mapping[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return data.getvalue()


def written_by_torch(save: str) -> bytes:
    data, module = io.BytesIO(), torch.nn.Linear(4, 3)
    if save == "jit":
        torch.jit.save(torch.jit.script(module), data)
    else:
        torch.save(module.state_dict() if save == "weights" else module, data)
    return data.getvalue()


def dumped(path: Path, compress: int | str) -> bytes:
    joblib.dump({"weights": np.zeros(1_000)}, path, compress=compress)
    return path.read_bytes()


HEADER = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
FILES: dict[str, tuple[bytes, str]] = {
    "xgboost.json": (b'{"learner":{"attributes":{}}}', r"XGBoost's own .* onnxmltools\.convert_xg"),
    "xgboost.ubj": (b"{L\0\0\0\0\0\0\0\x07learner{", r"XGBoost's own .*xgboost\.Booster\(model_"),
    "lightgbm.txt": (b"tree\nversion=v4\n", r"LightGBM's own .* onnxmltools\.convert_lightgbm\("),
    "catboost.cbm": (b"CBM1\0\0", r"CatBoost's own .* format='onnx'\)"),
    "net.keras": (
        zipped({"metadata.json": b"{}", "config.json": b"{}", "model.weights.h5": b""}),
        r"of Keras; keras\.saving\.load_model\(FILE\)\.export\('net\.onnx', format='onnx'\)",
    ),
    "net.h5": (b"\x89HDF\r\n\x1a\n", r"HDF5, .*\.export\('net\.onnx', format='onnx'\)"),
    "net.tflite": (b"\x1c\0\0\0TFL3\x14\0", r"tf2onnx\.convert --tflite FILE --output net\.onnx"),
    "saved_model.pb": (b"\x08\x01\x12\x02\x0a\x00", r"--saved-model FOLDER where it is saved"),
    "frozen.pb": (b"\x0a\x05\x0a\x03\xff\xfe\xfd", r"tf2onnx\.convert --graphdef FILE --inputs"),
    "net.safetensors": (
        len(HEADER).to_bytes(8, "little") + HEADER + bytes(4),
        r"weights and no program .*optimum-cli export onnx --model FOLDER onnx/.*modelless\.export",
    ),
    "net.gguf": (b"GGUF\x03\0\0\0", r"token by token, which are not served"),
    "net.xml": (b'<?xml version="1.0"?>\n<net name="net" version="11">', r"of OpenVINO; register "),
    "net.pmml": (b'<?xml version="1.0"?>\n<PMML version="4.4">', r"PMML, which is not read"),
    "net.engine": (b"\xff\xfe\xfd\xfc", r"engine of TensorRT .* register the ONNX file"),
    "net.zip": (zipped({"model.onnx": b"", "read.me": b""}), r"has an ONNX file, unpack that"),
    "cut_off.pt": (zipped({"net/data.pkl": b"", "net/data/0": b""})[:60], r"torch\.save writes"),
    "rows.npz": (zipped({"x.npy": b"", "labels.npy": b""}), r"the model is another file"),
    "page.onnx": (b"<!DOCTYPE html><html>", r"a page of the web, not the model"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_what_another_tool_has_written_is_refused_with_the_way_to_a_file_that_works(
    name: str,
) -> None:
    data, says = FILES[name]
    with pytest.raises(InvalidArtifact, match=f"^{name} (is|has) .*{says}"):
        parse_model(name, data)


@pytest.mark.parametrize(
    ("save", "says"),
    [
        ("weights", r"is what torch\.save writes, .*modelless\.export\(module, example_rows, 'net"),
        ("module", r"is what torch\.save writes, "),
        ("jit", r"is TorchScript, .*torch\.onnx\.export\(torch\.jit\.load\(FILE\), .*dynamo=False"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_what_pytorch_has_written_is_told_apart(save: str, says: str) -> None:
    with pytest.raises(InvalidArtifact, match=f"^net.pt {says}"):
        parse_model("net.pt", written_by_torch(save))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_torchscript_that_is_all_that_is_left_becomes_onnx_as_its_refusal_says(
    tmp_path: Path,
) -> None:
    example_rows, path = torch.zeros(2, 4), tmp_path / "net.pt"
    path.write_bytes(written_by_torch("jit"))
    with pytest.raises(InvalidArtifact) as refused:
        parse_model("net.pt", path.read_bytes())
    call = refused.value.message[refused.value.message.index("torch.onnx.export(") :]
    made = tmp_path / "model.onnx"
    exec(call.replace("'net.onnx'", "str(made)"), {
        "torch": torch, "FILE": str(path), "example_rows": example_rows, "made": made, "str": str,
    })  # fmt: skip
    assert check_model(made).inputs[0].shape == (4,)
    session = onnxruntime.InferenceSession(made)
    assert session.run(None, {"x": np.zeros((5, 4), np.float32)})[0].shape == (5, 3)


@pytest.mark.parametrize(
    ("compress", "says"),
    [
        (0, "is a pickle, such as joblib"),
        (3, r"is packed \(zlib\)"),
        ("gzip", r"is packed \(gzip\)"),
        ("bz2", r"is packed \(bzip2\)"),
        ("xz", r"is packed \(xz\)"),
    ],
)
def test_what_joblib_has_written_is_refused_however_it_is_packed(
    tmp_path: Path, compress: int | str, says: str
) -> None:
    data = dumped(tmp_path / "net.joblib", compress)
    with pytest.raises(InvalidArtifact, match=rf"^net.joblib {says}.*modelless\.export\(model, "):
        parse_model("net.joblib", data)


def test_a_pickle_and_a_packed_file_are_not_opened() -> None:
    for data in (pickle.dumps(print), lzma.compress(b"x")):
        with pytest.raises(InvalidArtifact, match="never read"):
            parse_model("net.onnx", data)


def folder_of(path: Path, *names: str) -> Path:
    path.mkdir(parents=True)
    for name in names:
        (path / name).write_bytes(b"")
    return path


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (
            ("config.json", "model.safetensors", "tokenizer.json"),
            r"is a model of Hugging Face without an ONNX file; `optimum-cli export onnx --model"
            r" {folder} onnx/` writes ONNX there .*; register onnx/model\.onnx"
            r" with --tokenizer {folder}/tokenizer\.json --lengths 16,64,256$",
        ),
        (
            ("config.json", "pytorch_model.bin"),
            r"is a model of Hugging Face .*; register onnx/model\.onnx$",
        ),
        (("config.json", "model-00001-of-00002.safetensors"), r"is a model of Hugging Face "),
        (("saved_model.pb",), r"tf2onnx\.convert --saved-model {folder} --output net\.onnx` "),
        (("model.onnx", "config.json"), r"give the file itself, {folder}/model\.onnx$"),
        (("notes.txt",), r"has no folder named after a version, such as 1$"),
    ],
    ids=["texts", "others", "shards", "TensorFlow", "with ONNX", "no model"],
)
def test_a_folder_of_another_tool_is_refused_with_the_way_to_a_file_that_works(
    tmp_path: Path, names: tuple[str, ...], says: str
) -> None:
    folder = folder_of(tmp_path / "net", *names)
    with pytest.raises(InvalidArtifact, match=f"^net .*{says.format(folder=folder)}"):
        find_model_files(folder)


def test_a_version_that_tensorflow_serving_would_take_is_refused_with_the_way(
    tmp_path: Path,
) -> None:
    folder_of(tmp_path / "net" / "1", "saved_model.pb")
    with pytest.raises(InvalidArtifact, match=r"^net/1 is a SavedModel of TensorFlow; .*/net/1 "):
        find_model_files(tmp_path / "net")


def test_what_a_file_becomes_is_not_called_as_an_upload_is() -> None:
    """Its client read that modelless.export is to write the file that it had sent."""
    for name, (data, _) in FILES.items():
        with pytest.raises(InvalidArtifact) as refused:
            parse_model(name, data)
        words = set(re.split(r"[^\w.]", refused.value.message))
        assert not {"model.onnx", "model.pt2"} & words, name
