"""Whether an archive of a PyTorch model can be opened without trusting it: every reason not to.

An archive is what ``modelless.export`` writes (``controlplane/client/exporting/torch_archive.py``
shows it): a ``torch.export`` program as JSON, its weights as raw bytes, and the same model as ONNX.
``torch.export.load`` would unpickle some members, load libraries from others, and evaluate parts of
the JSON. So nothing but the members of that layout may be there, and each is checked before
anything else opens the file. Nothing here imports torch or runs any part of the model.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from variants.checks.archive import program_words as words
from variants.checks.archive.program_check import TENSOR, ProgramInfo, check_program
from variants.checks.archive.tensor_layout import ITEM_BYTES, TensorLayout, layout_of
from variants.checks.json_shape import (
    Misfit,
    boolean,
    integer,
    list_of,
    map_of,
    one_of,
    read_json,
    record,
    text,
)
from variants.checks.onnx_check import OnnxInfo, OnnxLimits, check_model_bytes
from variants.checks.onnx_file import check_file
from variants.checks.onnx_signature import DTYPES, describe
from variants.checks.zip_layout import PIECE_BYTES, Member, pieces, read_layout
from variants.errors import InvalidArtifact
from variants.figures import apart
from variants.types import TensorSpec

ROOT = "archive/"
"""The folder that all members lie in."""
ONNX = "modelless/model.onnx"
DECLARED = "extra/modelless.json"
PROGRAM = "models/model.json"
FORMAT = 1

_WEIGHTS = "data/weights/model_weights_config.json"
_CONSTANTS = "data/constants/model_constants_config.json"
_SAMPLES = "data/sample_inputs/model.pt"
_FIXED = {"archive_format": b"pt2", "archive_version": b"0", "byteorder": b"little"}
_NEEDED = (*_FIXED, PROGRAM, _WEIGHTS, _CONSTANTS, _SAMPLES, DECLARED, ONNX, ".data/version")
_OPTIONAL = (".data/serialization_id",)
_STORAGE = re.compile(r"data/(weights/weight|constants/tensor)_[0-9]{1,6}")
_PICKLED = re.compile(r".*(\.pt|\.pth|\.pkl|\.pickle|/(custom|opaque)_obj_[^/]*)")
_COMPILED = re.compile(r"data/(aotinductor|executorch|mtia).*|.*\.(so|dll|dylib|cubin|c|cpp|o)")

_NAN_TYPES: Mapping[int, str] = {6: "<f2", 7: "<f4", 8: "<f8", 9: "<f2", 10: "<f4", 11: "<f8"}
_BFLOAT16 = 13


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveLimits:
    """What an archive may take."""

    size_mib: float = 4096
    """The weights and the ONNX hold the same numbers once each."""
    members: int = 20_000
    json_mib: float = 32
    """Largest size of the program, which is the largest JSON document."""
    depth: int = 64
    """How deeply JSON may be nested."""
    onnx: OnnxLimits = field(default_factory=OnnxLimits)
    """``nodes`` counts for the program too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveInfo:
    """What a checked archive says of itself; shapes are of one row."""

    inputs: tuple[TensorSpec, ...]
    """The inputs, in the order in which the program takes them."""
    outputs: tuple[TensorSpec, ...]
    """The outputs, in the order in which the program returns them."""
    opset: int
    """The opset of the ONNX file."""
    parameters: int
    size_bytes: int
    torch: str
    """The version that wrote it."""


def check_archive(path: Path, *, limits: ArchiveLimits | None = None) -> ArchiveInfo:
    """Read an archive and refuse it unless all of it is of the known layout and can only compute.

    Raises:
        InvalidArtifact: one sentence with the first reason; it names the file.
    """
    limits = limits or ArchiveLimits()
    size = check_file(path, limit_mib=limits.size_mib)
    members = _members(path, limits)
    archive = _Archive(path=path, members=members, limits=limits)
    for name, content in _FIXED.items():
        if archive.read(name, limit_mib=0.001) != content:
            raise archive.refused(name, f"is not {content.decode()!r}, as torch 2.13 writes it")
    if not re.fullmatch(rb"[0-9]{1,3}\n?", archive.read(".data/version", limit_mib=0.001)):
        raise archive.refused(".data/version", "is no version")
    for name in members.keys() & set(_OPTIONAL):
        archive.read(name, limit_mib=0.001)  # whole, though nothing is made of it
    if members[_SAMPLES].size_bytes:
        raise archive.refused(_SAMPLES, "holds pickled inputs; make it with modelless.export")
    program = check_program(
        archive.read(PROGRAM, limit_mib=limits.json_mib),
        where=archive.where(PROGRAM),
        max_depth=limits.depth,
        max_nodes=limits.onnx.nodes,
    )
    used = _check_storages(archive, _WEIGHTS, program.weights)
    used |= _check_storages(archive, _CONSTANTS, program.constants)
    unused = sorted(name for name in members if _STORAGE.fullmatch(name) and name not in used)
    if unused:
        raise archive.refused(unused[0], "belongs to no weight")
    inputs, outputs, opset, torch = _declared(archive)
    _check_program_gives(archive, program, inputs, outputs)
    onnx = check_model_bytes(
        archive.read(ONNX, limit_mib=limits.onnx.size_mib),
        where=archive.where(ONNX),
        limits=limits.onnx,
    )
    _check_onnx_gives(archive, onnx, inputs, outputs, opset)
    held = (*program.weights.values(), *program.constants.values())
    return ArchiveInfo(
        inputs=inputs,
        outputs=outputs,
        opset=opset,
        parameters=sum(layout.count for layout in held),
        size_bytes=size,
        torch=torch,
    )


def extract_onnx(path: Path, target: Path, *, limits: ArchiveLimits | None = None) -> None:
    """Write the ONNX of an archive to ``target``, which does not exist yet.

    Raises:
        InvalidArtifact: the archive has none that is whole.
    """
    limits = limits or ArchiveLimits()
    check_file(path, limit_mib=limits.size_mib)
    member = _members(path, limits)[ONNX]
    with target.open("xb") as file:
        for piece in pieces(path, member):
            file.write(piece)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Archive:
    """A file and its members by their names below ``ROOT``."""

    path: Path
    members: Mapping[str, Member]
    limits: ArchiveLimits

    def where(self, member: str) -> str:
        """What a sentence about a member begins with: ``net.pt2/models/model.json``."""
        return f"{self.path.name}/{member}"

    def refused(self, member: str, what: str) -> InvalidArtifact:
        return InvalidArtifact(f"{self.where(member)} {what}")

    def read(self, name: str, *, limit_mib: float) -> bytes:
        member = self.members[name]
        if member.size_bytes > limit_mib * 2**20:
            size, limit = apart(member.size_bytes / 2**20, limit_mib)
            raise self.refused(name, f"has {size} MiB, more than the {limit} allowed")
        return b"".join(pieces(self.path, member))

    def json(self, name: str) -> Any:
        data = self.read(name, limit_mib=self.limits.json_mib)
        return read_json(data, where=self.where(name), max_depth=self.limits.depth)


def _members(path: Path, limits: ArchiveLimits) -> dict[str, Member]:
    """The members by their names below ``ROOT``, once they are those of the layout."""
    with path.open("rb") as file:
        if file.read(2) == b"\x80\x02":
            raise InvalidArtifact(f"{path.name} is a pickle, which is never loaded")
    found = read_layout(path, max_members=limits.members)
    if _is_of_torch_alone(found):
        raise InvalidArtifact(
            f"{path.name} is what torch.export.save writes, which holds pickles; "
            "modelless.export(module, example_rows, FILE) writes the module without any"
        )
    members: dict[str, Member] = {}
    for name, member in found.items():
        inner = name.removeprefix(ROOT)
        if _PICKLED.fullmatch(name) and inner != _SAMPLES:
            raise InvalidArtifact(
                f"{path.name} has the member {name!r}, which would have to be unpickled; "
                "make it with modelless.export"
            )
        if _COMPILED.fullmatch(inner):
            raise InvalidArtifact(
                f"{path.name} has the member {name!r}, which is code that is never run"
            )
        known = inner in _NEEDED or inner in _OPTIONAL or _STORAGE.fullmatch(inner)
        if inner == name or not known:
            raise InvalidArtifact(
                f"{path.name} has the member {name!r}, which no archive of modelless.export has"
            )
        members[inner] = member
    for name in _NEEDED:
        if name not in members:
            raise InvalidArtifact(
                f"{path.name} lacks the member {ROOT + name!r}; make it with modelless.export"
            )
    return members


def _is_of_torch_alone(names: Iterable[str]) -> bool:
    """Whether it is a program of ``torch.export`` to which ``modelless.export`` has added nothing.

    Its folder is called after the file that it was saved as.
    """
    inner = {name.partition("/")[2] for name in names}
    return {"archive_format", PROGRAM} <= inner and not inner & {DECLARED, ONNX}


# -- weights and constants -----------------------------------------------------------------------

_PAYLOADS = record(
    {
        "config": map_of(
            words.path,
            record(
                {
                    "path_name": text(r"(weight|tensor)_[0-9]{1,6}", "the name of a storage"),
                    "is_param": boolean,
                    "use_pickle": one_of(False),
                    "tensor_meta": TENSOR,
                }
            ),
        )
    }
)


def _check_storages(
    archive: _Archive, config: str, declared: Mapping[str, TensorLayout]
) -> set[str]:
    """The storages that a document of weights or constants names, all of them sound."""
    document = archive.json(config)
    try:
        _PAYLOADS(document)
        payloads = document["config"]
        layouts = {name: layout_of(about["tensor_meta"]) for name, about in payloads.items()}
    except Misfit as misfit:
        raise InvalidArtifact(misfit.of(archive.where(config))) from None
    for name in sorted({*declared, *layouts}):
        if layouts.get(name) != declared.get(name):
            raise archive.refused(
                config, f"and the program differ in what they say of the tensor {name!r}"
            )
    folder = config.rpartition("/")[0]
    storages: dict[str, int] = {}
    for name, layout in layouts.items():
        storage = f"{folder}/{payloads[name]['path_name']}"
        if storage not in archive.members or not _STORAGE.fullmatch(storage):
            raise archive.refused(
                config, f"keeps the tensor {name!r} in {storage}, which is lacking"
            )
        if storages.setdefault(storage, layout.kind) != layout.kind:
            raise archive.refused(storage, "holds tensors of two types")
        _check_size(archive, storage, name, layout)
    for storage, kind in storages.items():
        if _has_nan(pieces(archive.path, archive.members[storage]), kind):
            raise archive.refused(storage, "contains NaN")
    return set(storages)


def _check_size(archive: _Archive, storage: str, name: str, layout: TensorLayout) -> None:
    """Refuse what is not all there, and what would be far more than is there."""
    size, item = archive.members[storage].size_bytes, ITEM_BYTES[layout.kind]
    if size % item or layout.reach * item > size:
        raise archive.refused(
            storage,
            f"has {size} bytes, but the tensor {name!r} needs {layout.reach * item}",
        )
    if layout.count * item > archive.limits.size_mib * 2**20:
        raise archive.refused(storage, f"repeats itself to {layout.count * item} bytes")


def _has_nan(data: Iterable[bytes], kind: int) -> bool:
    """Whether there is a NaN in it; the storage is read as a whole, for its checksum too."""
    found = False
    for piece in data:
        assert PIECE_BYTES % 16 == 0
        if kind == _BFLOAT16:
            magnitude = np.frombuffer(piece, "<u2") & 0x7FFF
            found |= bool((magnitude > 0x7F80).any())
        elif kind in _NAN_TYPES:
            found |= bool(np.isnan(np.frombuffer(piece, _NAN_TYPES[kind])).any())
    return found


# -- what it declares ----------------------------------------------------------------------------

_SPEC = record(
    {
        "name": text(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,200}", "a name"),
        "dtype": one_of(*DTYPES.values()),
        "shape": list_of(integer(1)),
    }
)
_DOCUMENT = record(
    {
        "format": one_of(FORMAT),
        "torch": text(r"[0-9A-Za-z.+-]{1,40}", "a version"),
        "opset": integer(1, 10_000),
        "inputs": list_of(_SPEC),
        "outputs": list_of(_SPEC),
    }
)


def _declared(
    archive: _Archive,
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...], int, str]:
    document = archive.json(DECLARED)
    try:
        _DOCUMENT(document)
    except Misfit as misfit:
        raise InvalidArtifact(misfit.of(archive.where(DECLARED))) from None
    inputs, outputs = (
        tuple(
            TensorSpec(name=spec["name"], dtype=spec["dtype"], shape=tuple(spec["shape"]))
            for spec in document[side]
        )
        for side in ("inputs", "outputs")
    )
    names = [spec.name for spec in (*inputs, *outputs)]
    if len(set(names)) != len(names):
        raise archive.refused(DECLARED, "has a name twice")
    return inputs, outputs, document["opset"], document["torch"]


def _check_program_gives(
    archive: _Archive,
    program: ProgramInfo,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
) -> None:
    """Compare inputs and outputs by position, because the program has names of its own."""
    pairs = (("input", program.inputs, inputs), ("output", program.outputs, outputs))
    for side, has, declared in pairs:
        if len(has) != len(declared):
            raise archive.refused(
                PROGRAM, f"has {len(has)} {side}s, but {DECLARED} declares {len(declared)}"
            )
        for own, spec in zip(has, declared, strict=True):
            if (own.dtype, own.shape) != (spec.dtype, spec.shape):
                raise archive.refused(
                    PROGRAM,
                    f"has the {side} {spec.name!r} as {describe(own)}, but {DECLARED} declares "
                    f"{describe(spec)}",
                )


def _check_onnx_gives(
    archive: _Archive,
    onnx: OnnxInfo,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    opset: int,
) -> None:
    """Compare inputs and outputs by name."""
    for side, has, declared in (("input", onnx.inputs, inputs), ("output", onnx.outputs, outputs)):
        own = {spec.name: spec for spec in has}
        wanted = {spec.name: spec for spec in declared}
        for name in sorted({*own, *wanted}):
            if own.get(name) != wanted.get(name):
                told = [
                    f"as {describe(found[name])}" if name in found else "not at all"
                    for found in (own, wanted)
                ]
                raise archive.refused(
                    ONNX, f"has the {side} {name!r} {told[0]}, but {DECLARED} has it {told[1]}"
                )
    if onnx.opset != opset:
        raise archive.refused(ONNX, f"uses opset {onnx.opset}, but {DECLARED} declares {opset}")
