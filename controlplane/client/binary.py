"""Queries as raw bytes: arrays go to the gateway as they lie in memory, not as text.

The Open Inference Protocol has a form for it, which names inputs and their types. So the client
asks for the signature of a task once in a while. What JSON would not take as it is, such as
fractions for an input of whole numbers, is left to JSON, whose refusal says what is wrong.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, Any

from controlplane.client.exchange import LENGTH, Reply, Unreachable, reply_of
from controlplane.slo_parameters import slo_parameters
from variants.errors import InvalidInput
from variants.types import Prefer

if TYPE_CHECKING:
    import httpx
    from numpy.typing import NDArray

LEAST_BYTES = 32_768
"""Smaller arrays are sent as JSON: reading them costs less than asking for the signature."""
SIGNATURE_S = 10.0
"""How long a signature is taken as it was."""

_DTYPES = {
    "FP32": "<f4", "FP64": "<f8", "INT64": "<i8", "INT32": "<i4", "UINT8": "u1", "BOOL": "?",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What a task takes and gives."""

    inputs: Mapping[str, tuple[str, tuple[int, ...]]]
    """Datatype and shape of a row of each, in order."""
    outputs: tuple[str, ...]
    labels: tuple[str, ...]


@dataclass(slots=True)
class Signatures:
    """Signatures of the tasks that were asked for lately."""

    _known: dict[str, tuple[float, Signature]] = field(default_factory=dict)

    def of(self, task: str) -> Signature | None:
        """None where it has to be asked for."""
        until_s, found = self._known.get(task, (0.0, None))
        return found if monotonic() < until_s else None

    def keep(self, task: str, document: Mapping[str, Any]) -> Signature:
        """Read a task's metadata.

        Raises:
            Unreachable: what answered is not modelless.
        """
        with _of_modelless():
            found = Signature(
                inputs={
                    each["name"]: (each["datatype"], tuple(each["shape"][1:]))
                    for each in document["inputs"]
                },
                outputs=tuple(each["name"] for each in document["outputs"]),
                labels=tuple(document.get("labels", ())),
            )
        self._known[task] = (monotonic() + SIGNATURE_S, found)
        return found


def arrays_in(inputs: Any, *, lists: bool = False) -> "dict[str, NDArray[Any]] | None":
    """Inputs that are arrays of numbers, by name; ``""`` names what stands alone.

    None where something is none.

    Args:
        lists: whether lists are read as arrays.
    """
    given = inputs if isinstance(inputs, Mapping) else {"": inputs}
    if not all(
        isinstance(name, str) and (lists or hasattr(each, "__array__"))
        for name, each in given.items()
    ):
        return None
    import numpy as np  # who sends lists does without it

    found: dict[str, NDArray[Any]] = {}
    for name, each in given.items():
        try:
            array = np.asarray(each)
        except Exception:  # rows of several lengths, tensors that need a gradient: JSON says so
            return None
        # Bytes have what is under a mask, and JSON null, which is refused.
        if array.dtype.kind not in "fiub" or not array.ndim or np.ma.is_masked(each):
            return None
        found[name] = array
    return found or None


def is_large(arrays: "Mapping[str, NDArray[Any]]") -> bool:
    """Whether it pays to send them as bytes."""
    return sum(array.nbytes for array in arrays.values()) >= LEAST_BYTES


def metadata_path(task: str) -> str:
    """Where a task's signature is."""
    return f"/v2/models/{_quoted(task)}"


def infer_path(task: str, variant: str | None) -> str:
    """Where such a query goes."""
    pinned = "" if variant is None else f"/versions/{_quoted(variant)}"
    return f"/v2/models/{_quoted(task)}{pinned}/infer"


def binary_content(
    signature: Signature,
    given: "Mapping[str, NDArray[Any]]",
    *,
    arrays: bool,
    latency_ms: float | None = None,
    accuracy: float | None = None,
    cost: float | None = None,
    prefer: Prefer | str | None = None,
    best_effort: bool = False,
    model_version: str | None = None,
    priority: int | None = None,
) -> tuple[bytes, dict[str, str]] | None:
    """Body and headers of a query; None where JSON has to carry it.

    Args:
        arrays: whether the answer shall come as bytes as well.
    """
    import orjson

    if set(given) == {""} and len(signature.inputs) == 1:
        given = {next(iter(signature.inputs)): given[""]}
    if given.keys() != signature.inputs.keys():
        return None
    inputs, raw = [], []
    for name, (datatype, row) in signature.inputs.items():
        array = _as(datatype, row, given[name])
        if array is None:
            return None
        raw.append(array.tobytes())
        inputs.append(
            {
                "name": name, "datatype": datatype, "shape": array.shape,
                "parameters": {"binary_data_size": len(raw[-1])},
            }
        )  # fmt: skip
    parameters = slo_parameters(
        latency_ms=latency_ms, accuracy=accuracy, cost=cost, prefer=prefer,
        best_effort=best_effort, model_version=model_version, priority=priority,
    )  # fmt: skip
    document: dict[str, Any] = {"inputs": inputs, "parameters": parameters}
    if arrays:
        parameters["binary_data_output"] = True
    head = orjson.dumps(document)
    headers = {LENGTH: str(len(head)), "Content-Type": "application/octet-stream"}
    return b"".join([head, *raw]), headers


def read_answer(
    response: "httpx.Response", document: Mapping[str, Any], signature: Signature, url: str
) -> Reply:
    """The same reply as to a query in JSON, with arrays for what came as bytes.

    Args:
        document: the JSON of the response.

    Raises:
        Unreachable: what answered is not modelless.
    """
    import numpy as np

    with _of_modelless():
        raw = memoryview(response.content)[int(response.headers.get(LENGTH, 0)) :]
        outputs: dict[str, Any] = {}
        for each in document["outputs"]:
            size = each.get("parameters", {}).get("binary_data_size")
            if size is None:
                outputs[each["name"]] = nested(each["data"], each["shape"])
            else:
                values = np.frombuffer(raw[:size], _DTYPES[each["datatype"]])
                outputs[each["name"]], raw = values.reshape(each["shape"]), raw[size:]
        found = dict(document["parameters"])
        first = outputs[signature.outputs[0]]
        found["outputs"] = first if len(outputs) == 1 else outputs
        if signature.labels:
            scores, named = np.asarray(first), signature.labels
            if scores.ndim == 3:  # of each position of a row
                found["labels"] = [[named[at] for at in row] for row in scores.argmax(2).tolist()]
                found["scores"] = scores.max(axis=2).tolist()
            else:
                scores = scores.reshape(len(scores), -1)
                found["labels"] = [named[at] for at in scores.argmax(axis=1).tolist()]
                found["scores"] = scores.max(axis=1).tolist()
    return reply_of(found, response, url)


def as_arrays(reply: Reply) -> Reply:
    """A reply to JSON with its outputs as arrays; where these are of several lengths, with a list
    of an array for each row."""
    outputs = reply.outputs
    if isinstance(outputs, dict):
        return replace(reply, outputs={name: _array(each) for name, each in outputs.items()})
    return replace(reply, outputs=_array(outputs))


def _array(rows: list[Any]) -> Any:
    import numpy as np

    apart = [np.array(row) for row in rows]
    alike = len({row.shape for row in apart}) == 1
    return np.stack(apart) if alike else apart


def nested(flat: list[Any], shape: list[int]) -> list[Any]:
    """Values that lie one after the other as lists in lists."""
    for size in reversed(shape[1:]):
        flat = [flat[at : at + size] for at in range(0, len(flat), size)]
    return flat


def _as(datatype: str, row: tuple[int, ...], array: "NDArray[Any]") -> "NDArray[Any] | None":
    """The array in the type that a task takes; None where a value would become another one."""
    import numpy as np

    dtype = _DTYPES.get(datatype)
    if len(row) == array.ndim - 1:  # where rows differ in length, -1 stands for it
        row = tuple(
            have if want == -1 else want for want, have in zip(row, array.shape[1:], strict=True)
        )
    if dtype is None or array.shape[1:] not in (row, (math.prod(row),)):
        return None
    wanted, kind = np.dtype(dtype), array.dtype.kind
    if (kind == "b") != (wanted.kind == "b"):
        return None
    if wanted.kind in "iu":
        if kind == "f":
            return None
        limits = np.iinfo(wanted)
        if array.size and not limits.min <= array.min() <= array.max() <= limits.max:
            return None
    with np.errstate(over="ignore"):  # the gateway says that it is not finite
        found = array.astype(wanted, copy=False)
    return found.reshape(len(array), *row)


@contextmanager
def _of_modelless() -> Iterator[None]:
    """
    Raises:
        Unreachable: a document is not as modelless writes it.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError) as error:
        raise Unreachable("what answers is not modelless") from error


def _quoted(name: str) -> str:
    from urllib.parse import quote

    if not name:
        raise InvalidInput("the name of a task or a variant is empty")
    return quote(name, safe="")
