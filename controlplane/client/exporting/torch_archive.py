"""A PyTorch module as an archive that can be served without trusting it: one ``.pt2`` file.

The file is a ``torch.export`` archive as ``torch.export.save`` of torch 2.13 writes it (a zip whose
members are stored, not compressed) that ``torch.export.load`` reads unchanged, with one member
added and no member that holds a pickle. The folder that all members lie in is always ``archive``,
and the same program gives the same bytes, whatever the file is called::

    archive/models/model.json                            the program's graph, as JSON
    archive/data/weights/model_weights_config.json       name -> weight_<n>; "use_pickle": false
    archive/data/weights/weight_<n>                      raw bytes of one storage
    archive/data/constants/model_constants_config.json   name -> tensor_<n>; "use_pickle": false
    archive/data/constants/tensor_<n>                    raw bytes of one storage
    archive/data/sample_inputs/model.pt                  empty, always: no inputs are kept
    archive/extra/modelless.json                         what the archive says of itself, below
    archive/modelless/model.onnx                         the same program as ONNX
    archive/archive_format  archive_version  byteorder   "pt2"  "0"  "little"
    archive/.data/version  .data/serialization_id        "6\\n"  40 digits

There is no ``custom_obj_*``, no ``opaque_obj_*``, no legacy ``*.pt`` of weights or constants and no
compiled code (``data/aotinductor``). The ONNX is not below ``extra/``, because
``torch.export.load`` decodes everything there as UTF-8.

``extra/modelless.json`` is UTF-8 JSON of at most a few KiB; shapes are of one row, the batch axis
left out, and ``opset`` is that of the ONNX::

    {"format": 1, "torch": "2.13.0+cpu", "opset": 20,
     "inputs": [{"name": "pixels", "dtype": "float32", "shape": [64]}],
     "outputs": [{"name": "scores", "dtype": "float32", "shape": [10]}]}

The program takes its inputs by position, in that order, and returns a tuple of its outputs, in that
order. Every input and output has the batch as its first axis, and any batch from 1 row on runs. The
ONNX has the same names.
"""

import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from controlplane.client.exporting.agreement import Arrays, largest_difference
from controlplane.client.exporting.example_inputs import Examples, dtype_name, read_examples
from controlplane.client.exporting.exported import Exported, ExportError
from controlplane.client.exporting.onnx_file import OnnxAnswers, cleaned, serialized
from controlplane.client.exporting.tracing import Traced, first_line, quiet_torch, trace
from variants.checks.archive.archive_check import check_archive
from variants.checks.onnx_edges import rename_values
from variants.errors import InvalidArtifact

FORMAT = 1
OPSET = 20
METADATA = "modelless.json"
ONNX_MEMBER = "modelless/model.onnx"


def export_module(
    module: Any,
    example_inputs: Any,
    target: Path,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> Exported:
    """Write ``module`` to ``target``; see ``exporting.export``.

    Raises:
        ExportError: it cannot be served as it is.
        OSError: ``target`` cannot be written.
    """
    import torch

    if isinstance(module, torch.jit.ScriptModule):
        raise ExportError("the module is TorchScript; export the nn.Module that it was made of")
    module = getattr(module, "_orig_mod", module)  # as torch.compile wraps it
    examples = read_examples(example_inputs, module.forward, input_names)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as folder:
        traced = trace(module, examples, output_names)
        onnx = Path(folder) / "model.onnx"
        onnx.write_bytes(_as_onnx(traced))
        # All members lie in a folder that torch calls after the file.
        archive = Path(folder) / "archive.pt2"
        _write(archive, traced, onnx)
        refuse_pickles(archive)
        try:
            check_archive(archive)
        except InvalidArtifact as error:
            raise ExportError(f"the archive would be refused: {error.message}") from error
        try:
            difference = _check_answers(archive, onnx, traced, examples)
        except ExportError as error:
            raise ExportError(error.message + _on_halves(module)) from error
        archive.replace(target)
    return Exported(
        path=target,
        inputs=traced.inputs,
        outputs=traced.outputs,
        rows=len(examples.tensors[0]),
        difference=difference,
    )


def _as_onnx(traced: Traced) -> bytes:
    import torch

    # The exporter calls values within after operators, and an output that is called so, too, twice.
    inputs = {f"modelless.input.{i}": spec.name for i, spec in enumerate(traced.inputs)}
    outputs = {f"modelless.output.{i}": spec.name for i, spec in enumerate(traced.outputs)}
    try:
        with quiet_torch():
            exported = torch.onnx.export(
                traced.program,
                dynamo=True,
                opset_version=OPSET,
                input_names=list(inputs),
                output_names=list(outputs),
                optimize=True,
                verbose=False,
            )
            model = exported.model_proto
    except ImportError as error:
        raise ExportError(
            f"exporting needs the package {error.name}: `pip install 'modelless[torch]'`"
        ) from error
    except Exception as error:  # the exporter passes on whatever its parts raise
        raise ExportError(f"the module has no ONNX form: {_cause(error)}") from error
    rename_values(model, inputs | outputs)
    cleaned(model)
    return serialized(model)


def _cause(error: BaseException) -> str:
    """The first line of what an error goes back to; the exporter wraps it in pages of advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error)


def _write(archive: Path, traced: Traced, onnx: Path) -> None:
    import torch

    described = {
        "format": FORMAT,
        "torch": torch.__version__,
        "opset": OPSET,
        "inputs": [asdict(spec) for spec in traced.inputs],
        "outputs": [asdict(spec) for spec in traced.outputs],
    }
    with quiet_torch():
        torch.export.save(
            traced.program, archive, extra_files={METADATA: json.dumps(described, indent=1)}
        )
    # A fixed date, as all other members have: the same model gives the same bytes.
    member = zipfile.ZipInfo(f"{archive.stem}/{ONNX_MEMBER}")
    member.file_size = onnx.stat().st_size
    with (
        zipfile.ZipFile(archive, "a") as members,
        onnx.open("rb") as source,
        members.open(member, "w") as copy,
    ):
        shutil.copyfileobj(source, copy, 1 << 20)


def refuse_pickles(archive: Path) -> None:
    """Refuse what can only be kept as a pickle: tensor subclasses, objects of TorchScript."""
    with zipfile.ZipFile(archive) as members:
        for name in members.namelist():
            if not name.endswith(("_weights_config.json", "_constants_config.json")):
                continue
            for held, about in json.loads(members.read(name))["config"].items():
                if about["use_pickle"]:
                    raise ExportError(
                        f"{held.removeprefix('module.')!r} is not a plain tensor and could only be "
                        "kept as a pickle, which is never loaded"
                    )


def _check_answers(archive: Path, onnx: Path, traced: Traced, examples: Examples) -> float:
    """The largest difference of what was written from the module's own answers, to all rows and
    to one.
    """
    import torch

    with quiet_torch():
        program = torch.export.load(archive).module()
    names = [spec.name for spec in traced.outputs]

    def by_program(rows: Arrays) -> Arrays:
        with torch.no_grad():
            answers = program(*(torch.from_numpy(rows[name]) for name in examples.names))
        return {name: out.numpy() for name, out in zip(names, answers, strict=True)}

    tensors = (tensor.contiguous().numpy() for tensor in examples.tensors)
    rows = dict(zip(examples.names, tensors, strict=True))
    first = {name: array[:1] for name, array in rows.items()}
    wanted = {name: array[:1] for name, array in traced.answers.items()}
    by_onnx = _running(onnx)
    differences = [
        largest_difference(by_program(rows), traced.answers, where="the program"),
        largest_difference(by_program(first), wanted, where="the program"),
        largest_difference(by_onnx(rows), traced.answers, where="the ONNX"),
        largest_difference(by_onnx(first), wanted, where="the ONNX"),
    ]
    return max(differences)


def _running(onnx: Path) -> Callable[[Arrays], Arrays]:
    """Answers rows by the ONNX.

    Raises:
        ExportError: ONNX Runtime cannot run it; calling what is returned raises it, too.
    """

    def why(error: Exception) -> ExportError:  # the binding has a type for each cause
        return ExportError(f"ONNX Runtime does not run the module's ONNX: {first_line(error)}")

    try:
        answers = OnnxAnswers(onnx.read_bytes())
    except Exception as error:
        raise why(error) from error

    def run(rows: Arrays) -> Arrays:
        try:
            return answers(rows)
        except Exception as error:
            raise why(error) from error

    return run


def _on_halves(module: Any) -> str:
    """What to do about a module that computes in 16 bits, where that may be what is wrong."""
    kinds = {dtype_name(held) for held in (*module.parameters(), *module.buffers())}
    halves = sorted(kinds & {"float16", "bfloat16"})
    if not halves:
        return ""
    return (
        f"; its weights are {halves[0]}: export module.float(), of which variants in 16 bits are"
        " built"
    )
