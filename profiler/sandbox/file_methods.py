"""What the child does with files: models that are checked and changed, texts that become rows of
numbers, and variants that are built.

Each method takes and gives plain JSON values, as its docstring says. What is heavy is imported
where it is used: a child that only measures has nothing of it.
"""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from profiler.evaluation.freed_batch import check_freed, try_rows
from profiler.evaluation.output_sizes import has_unsaid, say_output_sizes, with_other_rows
from profiler.sandbox.calls import Announce, Arguments
from variants.buckets import read_bucket
from variants.builders.protocol import Material
from variants.builders.registry import make_builder
from variants.checks.edges import Edges
from variants.checks.onnx_check import OnnxLimits, check_model
from variants.checks.onnx_edges import change_edges
from variants.checks.onnx_file import check_file
from variants.metrics.metric import Judged, parse_metric
from variants.onnx_wire import align_weights
from variants.types import TextInput
from workers.runtimes.protocol import Tensor


def check(arguments: Arguments, announce: Announce) -> dict[str, Any]:
    """``path``, ``size_mib`` to what the model says of itself.

    ``path`` is a ``torch.export`` archive if ``onnx`` is given: where its ONNX is written to.
    """
    limits = OnnxLimits(size_mib=arguments["size_mib"])
    path = Path(arguments["path"])
    if arguments.get("onnx"):
        from variants.checks.archive.archive_check import ArchiveLimits, check_archive, extract_onnx

        archive_limits = ArchiveLimits(size_mib=2 * limits.size_mib, onnx=limits)
        check_archive(path, limits=archive_limits)
        onnx = Path(arguments["onnx"])
        extract_onnx(path, onnx, limits=archive_limits)
        path = onnx
    info = check_model(path, limits=limits)
    return asdict(replace(info, uneven=with_other_rows(path, info.uneven)))


def change(arguments: Arguments, announce: Announce) -> dict[str, Any]:
    """``path``, ``target``, ``size_mib`` and ``edges`` to ``unsaid``, whether outputs of it do not
    say their sizes: a model with other edges is written."""
    given: dict[str, Any] = {name: _frozen(value) for name, value in arguments["edges"].items()}
    edges, target = Edges(**given), Path(arguments["target"])
    change_edges(Path(arguments["path"]), target, edges, limit_mib=arguments["size_mib"])
    return {"unsaid": has_unsaid(target, limit_mib=arguments["size_mib"])}


def sizes(arguments: Arguments, announce: Announce) -> dict[str, Any]:
    """``path``, ``target`` and ``size_mib`` to nothing: a model with the sizes of its outputs,
    which running it shows, is written where they can be told."""
    source, target = Path(arguments["path"]), Path(arguments["target"])
    say_output_sizes(source, target, limit_mib=arguments["size_mib"])
    return {}


def freed(arguments: Arguments, announce: Announce) -> dict[str, Any]:
    """``path`` and ``size_mib`` to nothing: a model whose batch was freed is checked and tried."""
    path = Path(arguments["path"])
    check_freed(path, limits=OnnxLimits(size_mib=arguments["size_mib"]))
    try_rows(path.name, path)
    return {}


def _frozen(value: Any) -> Any:
    """Lists of JSON as tuples."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def join(arguments: Arguments, announce: Announce) -> dict[str, Any]:
    """``path``, ``target`` and ``size_mib`` to nothing: a model and the weights that lie beside it
    are written as one file."""
    from variants.checks.onnx_parts import join_parts

    target = Path(arguments["target"])
    join_parts(Path(arguments["path"]), target, limit_mib=arguments["size_mib"])
    return {}


def plain(arguments: Arguments, announce: Announce) -> dict[str, Any]:
    """``path``, ``target`` and ``size_mib`` to ``unsaid``, as of ``change``: a model that a
    converter has left in a form that cannot be served is written in one that can."""
    from variants.checks.onnx_plain import plain as written

    source, target = Path(arguments["path"]), Path(arguments["target"])
    if written(source, target, limit_mib=arguments["size_mib"]):
        source = target
    return {"unsaid": has_unsaid(source, limit_mib=arguments["size_mib"])}


def fix_axis(arguments: Arguments, announce: Announce) -> dict[str, Any]:
    """``path``, ``size_mib``, ``length``, the ``longest`` of all, and ``target``, where the model
    with that size is written, to the open ``axes``: pairs of an input's name and an axis of its
    rows; the ``outputs`` that follow them (the fields of a ``FollowingAxis``), and the name of the
    ``first`` output."""
    from profiler.evaluation.output_sizes import sizes_by_length
    from variants.checks.open_axis import fix_axis as fixed

    path = Path(arguments["path"])
    check_file(path, limit_mib=arguments["size_mib"])
    found = fixed(
        path.read_bytes(),
        int(arguments["length"]),
        where=path.name,
        longest=int(arguments["longest"]),
        run=sizes_by_length(path),
    )
    Path(arguments["target"]).write_bytes(found.data)
    outputs = [asdict(one) for one in found.outputs]
    return {"axes": found.inputs, "outputs": outputs, "first": found.first}


def text_inputs(arguments: Arguments, announce: Announce) -> dict[str, Any]:
    """``path`` of a model, ``tokenizer``, ``given`` inputs by what they take, ``size_mib`` and the
    name ``where`` to the fields of a ``TextInput`` but its tokenizer's name, and ``dtypes`` of its
    inputs, the ``length`` of their rows if that is fixed, how many embeddings its ``table`` has if
    that can be seen, and the ``highest`` number that the tokenizer gives.

    Where the model joins a task, the ``text`` of that and ``task_dtypes`` of its inputs: a model
    with other inputs is written to ``target`` with those of the task.
    """
    from profiler.evaluation.text_inputs import inputs_for_texts
    from profiler.evaluation.text_signature import as_task_takes

    path, where = Path(arguments["path"]), arguments["where"]
    check_file(path, limit_mib=arguments["size_mib"])
    tokeniser = _tokeniser(arguments)
    found = inputs_for_texts(path, arguments["given"], where=where)
    if arguments["text"] is not None:
        text = TextInput(**arguments["text"])
        dtypes, pad = arguments["task_dtypes"], tokeniser.pad
        changed = as_task_takes(path.read_bytes(), found, text, dtypes, pad, where=where)
        if changed is not None:
            Path(arguments["target"]).write_bytes(changed)
    return {**asdict(found), "pad": tokeniser.pad, "highest": tokeniser.highest}


def tokenizer(arguments: Arguments, announce: Announce) -> dict[str, Any]:
    """``tokenizer``, and what it is called in sentences, to the number of its ``pad`` token and the
    ``highest`` one; and the ``tables`` of ``models``, which are read by their input ``ids``."""
    from profiler.evaluation.embedding_table import rows_of_table
    from variants.checks.onnx_file import parse_model

    found = _tokeniser(arguments)
    tables = {
        label: rows_of_table(parse_model(label, Path(path).read_bytes()), arguments["ids"])
        for label, path in arguments.get("models", {}).items()
    }
    return {"pad": found.pad, "highest": found.highest, "tables": tables}


def text_rows(arguments: Arguments, announce: Announce) -> dict[str, Any]:
    """``path`` of a file of rows, ``target``, ``tokenizer``, ``text`` (the fields of a
    ``TextInput``), ``dtypes``, ``longest`` and ``width`` to how many ``rows`` there are now: none
    where the file has no texts, and nothing is written then."""
    from profiler.evaluation.text_rows import fit_texts, may_have_texts

    path = Path(arguments["path"])
    if not may_have_texts(path):
        return {"rows": 0}
    fitted = fit_texts(
        path,
        Path(arguments["target"]),
        _tokeniser(arguments),
        TextInput(**arguments["text"]),
        arguments["dtypes"],
        longest=arguments["longest"],
        width=arguments["width"],
    )
    return asdict(fitted)


def _tokeniser(arguments: Arguments) -> Any:
    from variants.texts.tokenising import Tokeniser

    path = Path(arguments["tokenizer"])
    return Tokeniser(path.read_bytes(), arguments.get("tokenizer_name") or path.name)


def build(arguments: Arguments, announce: Announce) -> dict[str, Any]:
    """``kind``, ``source``, ``target``, ``calibration`` to the builder's note and the file's size.

    Where given: ``program``, ``training``, ``teacher``, ``floor``, ``loss``, ``metric``,
    ``judged_output``, ``along``, ``bucket``, ``aligned``.
    Rows come as npz files, labels or targets as their array of that name.
    """
    metric = parse_metric(arguments.get("metric") or "top1")
    calibration, calibration_labels = _rows(arguments["calibration"], metric.truth)
    training, training_labels = _rows(arguments.get("training"), metric.truth)
    target = Path(arguments["target"])
    material = Material(
        source=Path(arguments["source"]),
        program=_path(arguments.get("program")),
        calibration=calibration,
        calibration_labels=calibration_labels,
        training=training,
        training_labels=training_labels,
        teacher=_path(arguments.get("teacher")),
        floor=arguments.get("floor"),
        loss=arguments.get("loss"),
        judged=Judged(
            metric=metric,
            output=arguments.get("judged_output") or None,
            along=arguments.get("along"),
        ),
        bucket=read_bucket(arguments.get("bucket")),
    )
    built = make_builder(arguments["kind"]).build(material, target)
    if arguments.get("aligned") and target.suffix == ".onnx":
        align_weights(target)
    return {"size_bytes": target.stat().st_size, **asdict(built)}


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _rows(path: str | None, truth: str) -> tuple[dict[str, Tensor], Tensor | None]:
    """Inputs by name ``(rows, *shape)``, and the array ``truth`` of labels ``(rows,)`` or targets
    ``(rows, *shape)``, of an npz file; none of no file."""
    if not path:
        return {}, None
    with np.load(path, allow_pickle=False) as data:
        rows = {name: data[name] for name in data.files}
    return rows, rows.pop(truth, None)
