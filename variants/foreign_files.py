"""Files and folders that people have for a model, and that cannot be served: what they are, and the
way from there to one that can.

Told by how they begin, by what stands in them, and last by their names; nothing of them is run. The
way out is a command, or a line of Python for where the model was made. It writes no ``model.onnx``:
an upload is called so here, and its client reads its own name instead.
"""

import zipfile
from collections.abc import Collection
from io import BytesIO
from pathlib import PurePath

MOST_MEMBERS = 10_000
"""Of a zip archive, which is not looked at where it has more."""

_TORCH = "modelless.export(module, example_rows, 'net.pt2')"
_LOAD = (
    "load it in Python where it was made, and write it with modelless.export(model, example_rows,"
    f" 'net.onnx') if scikit-learn made it, or {_TORCH} if it is a module of PyTorch"
)
_PICKLE = f"is a pickle, such as joblib and torch.save write, which is never read; {_LOAD}"
_PACKED = (
    "is packed ({}): unpack it, and give the model in it; what joblib packs is a pickle, which is"
    f" never read: {_LOAD}"
)
_TREES = (
    "is in {library}'s own format; onnxmltools.convert_{name}({name}.Booster(model_file=FILE),"
    " initial_types=[('features', FloatTensorType([None, COLUMNS]))]) makes ONNX of it"
    " (pip install onnxmltools)"
)
_XGBOOST = _TREES.format(library="XGBoost", name="xgboost")
_LIGHTGBM = _TREES.format(library="LightGBM", name="lightgbm")
_CATBOOST = "is in CatBoost's own format; model.save_model('net.onnx', format='onnx') writes ONNX"
_KERAS = (
    "is a model of Keras; keras.saving.load_model(FILE).export('net.onnx', format='onnx') writes"
    " ONNX (Keras 3; with TensorFlow under it pip install tf2onnx, with PyTorch the batch comes out"
    " as 1, which --free-batch frees)"
)
_HDF5 = f"is HDF5, as older Keras writes it: if it has more than weights, it {_KERAS}"
_SAVED_MODEL = (
    "is a SavedModel of TensorFlow; `python -m tf2onnx.convert --saved-model {folder} --output"
    " net.onnx` makes ONNX of it (pip install tf2onnx)"
)
_TFLITE = (
    "is a model of TensorFlow Lite; `python -m tf2onnx.convert --tflite FILE --output net.onnx`"
    " makes ONNX of it (pip install tf2onnx)"
)
_GRAPH = (
    "is no ONNX model; of a graph of TensorFlow `python -m tf2onnx.convert --graphdef FILE --inputs"
    " NAME:0 --outputs NAME:0 --output net.onnx` makes one (pip install tf2onnx), or"
    " --saved-model FOLDER where it is saved_model.pb"
)
_OPTIMUM = (
    "`optimum-cli export onnx --model {folder} onnx/` writes ONNX there"
    " (pip install 'optimum-onnx[onnxruntime]')"
)
_SAFETENSORS = (
    "has weights and no program (safetensors); of a model of Hugging Face"
    f" {_OPTIMUM.format(folder='FOLDER')}, else load them into the module and write it with"
    f" {_TORCH}"
)
_TORCH_SCRIPT = (
    "is TorchScript, which holds code and pickles and is never read; write the module with"
    f" {_TORCH}, or where this file is all that is left, torch.onnx.export(torch.jit.load(FILE),"
    " (example_rows,), 'net.onnx', dynamo=False, input_names=['x'], dynamic_axes={'x': {0: 'n'}})"
)
_TORCH_SAVE = (
    "is what torch.save writes, which holds a pickle and is never read; load it into the module"
    f" where it was trained, and write that with {_TORCH}"
)
_TORCH_EXPORT = f"is what torch.export.save writes, which holds pickles; {_TORCH} writes none"
_GGUF = "is GGUF, of models that write text token by token, which are not served"
_OPENVINO = (
    "is a model of OpenVINO; register the ONNX file that it was made of: variants for OpenVINO are"
    " built of that"
)
_ENGINE = (
    "is no ONNX model; an engine of TensorRT is of one GPU and version: register the ONNX file that"
    " it was built of"
)
_PADDLE = (
    "is a model of PaddlePaddle; `paddle2onnx --model_dir FOLDER --model_filename FILE"
    " --params_filename PARAMS --save_file net.onnx` makes ONNX of it (pip install paddle2onnx)"
)
_WEIGHTS = ("model.safetensors", "model-00001", "pytorch_model")
_NOT_READ = "is {}, which is not read; write the model as ONNX where it was trained"
_LFS = "is what Git LFS keeps in its place; `git lfs pull` fetches it"
_PAGE = "is a page of the web, not the model: what was it downloaded from"
_ROWS = "has arrays of NumPy, as files of rows do; the model is another file"
_ZIP = "is a zip archive that modelless.export has not written; if it has an ONNX file, unpack that"

_BEGIN = (
    (b"\x80", _PICKLE),
    (b"x\x01", _PACKED.format("zlib")),
    (b"x\x5e", _PACKED.format("zlib")),
    (b"x\x9c", _PACKED.format("zlib")),
    (b"x\xda", _PACKED.format("zlib")),
    (b"\x1f\x8b", _PACKED.format("gzip")),
    (b"BZh", _PACKED.format("bzip2")),
    (b"\xfd7zXZ", _PACKED.format("xz")),
    (b"\x04\x22\x4d\x18", _PACKED.format("lz4")),
    (b"\x89HDF\r\n", _HDF5),
    (b"CBM1", _CATBOOST),
    (b"GGUF", _GGUF),
    (b"tree\n", _LIGHTGBM),
    (b"binf", _XGBOOST),
    (b"version https://git-lfs", _LFS),
)
"""How files begin, and what they are. No ONNX model begins so: its first byte is the tag of a field
of ``ModelProto``, a number of at most 25 and a wire type."""

_SUFFIXES = {
    ".pb": _GRAPH,
    ".plan": _ENGINE,
    ".engine": _ENGINE,
    ".trt": _ENGINE,
    ".mlmodel": _NOT_READ.format("a model of Core ML"),
    ".pdmodel": _PADDLE,
}
"""What files are by their names, where nothing else tells it."""


def foreign_file(data: bytes) -> str | None:
    """What a file is that is no ONNX model, and what to do, in a clause; None where its bytes do
    not say that it is something else."""
    for beginning, what in _BEGIN:
        if data.startswith(beginning):
            return what
    if data.startswith(b"PK\x03\x04"):
        return _zip(data)
    if data.startswith(b"{"):
        return _XGBOOST if b"learner" in data[:4_096] else None
    if data.startswith(b"<"):
        return _markup(data[:4_096])
    if data[1:8] == b"\0\0\0TFL3":
        return _TFLITE
    if data[8:9] == b"{" and int.from_bytes(data[:8], "little") <= len(data):
        return _SAFETENSORS
    return None


def by_name(name: str) -> str | None:
    """The same by the name of a file that could not be read."""
    return _SUFFIXES.get(PurePath(name).suffix.lower())


def foreign_folder(folder: str, names: Collection[str]) -> str | None:
    """What a folder is that holds no versions of a model, and what to do, in a clause; None where
    it is none that is known.

    Args:
        folder: its path as it was given.
        names: of what lies in it.
    """
    if onnx := sorted(name for name in names if name.endswith(".onnx")):
        return f"is no folder of versions; give the file itself, {folder}/{onnx[0]}"
    if "saved_model.pb" in names:
        return _SAVED_MODEL.format(folder=folder)
    if "config.json" in names and any(name.startswith(_WEIGHTS) for name in names):
        texts = f" with --tokenizer {folder}/tokenizer.json --lengths 16,64,256"
        return (
            f"is a model of Hugging Face without an ONNX file; {_OPTIMUM.format(folder=folder)};"
            f" register onnx/model.onnx{texts if 'tokenizer.json' in names else ''}"
        )
    return None


def _zip(data: bytes) -> str:
    """What a zip archive holds, by the names of its members."""
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            names = archive.namelist() if len(archive.filelist) <= MOST_MEMBERS else []
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
        return _TORCH_SAVE  # cut off, as any may be; these are handed in most
    inner = {name.partition("/")[2] for name in names}
    if {"config.json", "model.weights.h5"} <= set(names):
        return _KERAS
    if any(name.startswith("code/") for name in inner):
        return _TORCH_SCRIPT
    if "data.pkl" in inner:
        return _TORCH_SAVE
    if any(name.startswith(("models/", "data/weights")) for name in inner):
        return _TORCH_EXPORT
    if names and all(name.endswith(".npy") for name in names):
        return _ROWS
    return _ZIP


def _markup(begin: bytes) -> str:
    """What a file is that begins as a page of the web does."""
    if b"<net " in begin:
        return _OPENVINO
    return _NOT_READ.format("PMML") if b"<PMML" in begin else _PAGE
