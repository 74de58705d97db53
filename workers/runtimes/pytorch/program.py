"""A PyTorch program read from its archive, without trusting the archive.

``torch.export.load`` unpickles sample inputs, evaluates symbolic sizes and guards as Python, and
finds an operator by walking attributes from ``torch``. So we read the archive ourselves: the graph
is JSON, the weights are raw bytes, and of all that the format can say only this much is understood:
calls of ATen operators and arithmetic on sizes, on tensors and plain values. Sizes that depend on
the batch are computed as it runs, so there is no expression to evaluate. It is also quicker by the
seconds that importing ``torch.export`` and propagating shapes take, and the function that comes out
costs a tenth of a millisecond less per call than ``ExportedProgram.module()``.

The layout is told in ``controlplane/client/exporting/torch_archive.py``, the schema of the JSON in
torch's ``torch/_export/serde/schema.py``; this reads its major version 8.
"""

import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from variants.errors import RuntimeFailed
from workers.runtimes.pytorch.source import DTYPES, Source

SCHEMA = 8

_Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Program:
    """The program of an archive, ready to run."""

    function: Callable[..., tuple[Any, ...]]
    """``function(*weights, *inputs)``. It holds no tensor."""
    weights: tuple[Any, ...]
    """Parameters, buffers and constants, in the requested precision and on the device."""
    takes: int
    """Number of inputs."""
    gives: int

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        return self.function(*self.weights, *inputs)


@dataclass(frozen=True, slots=True)
class Declared:
    """Names of the inputs and outputs by position; None where the archive does not say."""

    inputs: tuple[str, ...] | None
    outputs: tuple[str, ...] | None


def read_program(path: str, *, dtype: Any = None, device: str = "cpu") -> Program:
    """Read an archive; floating-point weights and intermediate values become ``dtype``, if given.

    Raises:
        RuntimeFailed: it is not such an archive, or says more than is understood here.
    """
    with _opened(path) as members:
        return _program(members, dtype, device)


def read_declared(path: str) -> Declared:
    """What an archive calls its inputs and outputs.

    Raises:
        RuntimeFailed: it is not such an archive.
    """
    with _opened(path) as members:
        said = members.json("extra/modelless.json", {})
        names = [
            tuple(str(each["name"]) for each in said[side]) if side in said else None
            for side in ("inputs", "outputs")
        ]
        return Declared(*names)


@contextmanager
def _opened(path: str) -> Iterator["_Members"]:
    """The members of an archive; what goes wrong with them is one sentence."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield _Members(archive)
    except OSError as error:
        raise RuntimeFailed(f"the archive cannot be read: {error.strerror}") from error
    except (zipfile.BadZipFile, UnicodeDecodeError, NotImplementedError) as error:
        raise RuntimeFailed(f"the archive is damaged: {error}") from error
    except (KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
        what = f"{type(error).__name__}: {error}"
        raise RuntimeFailed(f"the archive's program is not understood: {what}"[:300]) from error


class _Members:
    """The archive's members by their path below its one folder."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._found = {info.filename.partition("/")[2]: info for info in archive.infolist()}

    def json(self, path: str, default: _Json | None = None) -> _Json:
        if path not in self._found:
            if default is None:
                raise RuntimeFailed(f"the archive has no {path}")
            return default
        found = json.loads(self._archive.read(self._found[path]))
        if not isinstance(found, dict):
            raise RuntimeFailed(f"the archive's {path} holds no object")
        return found

    def storage(self, path: str) -> Any:
        """A member as a new tensor of bytes, aligned as torch aligns."""
        import torch

        info = self._found[path]
        storage = torch.empty(info.file_size, dtype=torch.uint8)
        view, at = memoryview(storage.numpy()), 0
        with self._archive.open(info) as file:
            while at < info.file_size and (data := file.read(1 << 22)):
                view[at : at + len(data)] = data
                at += len(data)
        if at != info.file_size:
            raise RuntimeFailed(f"the archive's {path} is cut short")
        return storage


def _program(members: _Members, dtype: Any, device: str) -> Program:
    model = members.json("models/model.json")
    version = model["schema_version"]["major"]
    if version != SCHEMA:
        raise RuntimeFailed(f"the archive has schema {version} of torch.export, not {SCHEMA}")
    graph, signature = model["graph_module"]["graph"], model["graph_module"]["signature"]
    stored = _Weights(members, dtype, device)
    source = Source(dtype, device)
    weights: list[Any] = []
    users: list[str] = []
    for spec in signature["input_specs"]:
        ((kind, held),) = spec.items()
        if kind == "user_input":
            users.append(_tensor(held["arg"]))
        elif kind in ("parameter", "buffer", "tensor_constant"):
            name = held[f"{kind}_name"]
            weights.append(stored.get(kind, name))
            source.argument(held["arg"]["name"])
        else:
            raise RuntimeFailed(f"the archive's program takes a {kind}, not only tensors")
    for name in users:
        source.argument(name)
    for node in graph["nodes"]:
        source.node(node)
    results = [_result(spec) for spec in signature["output_specs"]]
    function = source.function(results)
    return Program(function, tuple(weights), len(users), len(results))


class _Weights:
    """Parameters, buffers and constants by name; those that are tied stay tied."""

    def __init__(self, members: _Members, dtype: Any, device: str) -> None:
        self._members = members
        self._dtype = dtype
        self._device = device
        self._storages: dict[str, Any] = {}
        self._made: dict[tuple[Any, ...], Any] = {}
        self._configs = {
            folder: members.json(f"data/{folder}/model_{folder}_config.json")["config"]
            for folder in ("weights", "constants")
        }

    def get(self, kind: str, name: str) -> Any:
        """The tensor of a name, cast and moved.

        A buffer that the program's state leaves out is kept with the constants.
        """
        folder = "constants" if kind == "tensor_constant" else "weights"
        if kind == "buffer" and name not in self._configs[folder]:
            folder = "constants"
        entry = self._configs[folder][name]
        meta = entry["tensor_meta"]
        if entry["use_pickle"] is not False or meta is None:
            raise RuntimeFailed(f"the archive keeps {name} as a pickle, and none is ever loaded")
        import torch

        sizes, strides, (offset,) = (
            _ints(part) for part in (meta["sizes"], meta["strides"], [meta["storage_offset"]])
        )
        path = f"data/{folder}/{entry['path_name']}"
        what = (path, meta["dtype"], *sizes, None, *strides, offset)
        if what in self._made:
            return self._made[what]
        try:
            flat = self._storage(path).view(getattr(torch, DTYPES[meta["dtype"]]))
            tensor = torch.as_strided(flat, sizes, strides, offset)
        except RuntimeError as error:
            raise RuntimeFailed(f"the archive's {name} lies outside of its bytes") from error
        casts = self._dtype is not None and tensor.dtype.is_floating_point
        found = tensor.to(self._device, self._dtype if casts else tensor.dtype)
        return self._made.setdefault(what, found)

    def _storage(self, path: str) -> Any:
        if path not in self._storages:
            self._storages[path] = self._members.storage(path)
        return self._storages[path]


def _tensor(argument: _Json) -> str:
    """The name in an argument that has to be a tensor."""
    ((kind, content),) = argument.items()
    if kind != "as_tensor":
        raise RuntimeFailed("the archive's program takes or gives something that is no tensor")
    return str(content["name"])


def _result(spec: _Json) -> str:
    ((kind, held),) = spec.items()
    if kind != "user_output":
        raise RuntimeFailed(f"the archive's program has a {kind}: it would change itself")
    return _tensor(held["arg"])


def _ints(values: Sequence[_Json]) -> list[int]:
    """Sizes that are known: those of a weight are."""
    return [int(value["as_int"]) for value in values]
