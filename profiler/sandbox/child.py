"""The process in which a foreign model is tried: reads calls, one JSON line each, and answers them.

``python -m profiler.sandbox.child PARENT_PID MEMORY_MIB THREADS RUNTIME cpu|gpu``. Started by
``profiler.sandbox.sandbox`` only. It imports what a measurement needs and nothing more, so that
starting it is cheap and what it measures is the model.
"""

import ctypes
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from profiler.evaluation.accuracy import answers, check_alone, judge, wants_memory
from profiler.evaluation.freed_batch import check_freed, try_rows
from profiler.evaluation.output_sizes import has_unsaid, say_output_sizes
from profiler.sandbox.measure import Trial, pin
from variants.buckets import read_bucket
from variants.builders.protocol import Material
from variants.builders.registry import make_builder
from variants.checks.edges import Edges
from variants.checks.onnx_check import OnnxLimits, check_file, check_model
from variants.checks.onnx_edges import change_edges
from variants.errors import InvalidArtifact, ModellessError, VariantNotBuilt
from variants.metrics.metric import Judged, parse_metric
from variants.types import Digest, TaskName, TensorSpec, TextInput, VariantName
from workers.runtimes.protocol import Tensor
from workers.runtimes.registry import import_libraries
from workers.types import LoadSpec

PER_THREAD_MIB = 80
"""Address space, not memory: a thread's stack and its own allocation arena."""

TOO_MUCH_MEMORY = "it needs more memory than a trial may take"

FIRST_TO_GO = 1000
"""The highest ``oom_score_adj``: of several processes that have it, the largest goes first."""

TELL_EVERY_S = 0.5
"""How far a call is, its caller hears so often."""

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38

Arguments = Mapping[str, Any]
Announce = Callable[[int, int], None]
"""Tells how much is done, and of how much."""


def check(arguments: Arguments, announce: Announce) -> dict[str, Any]:
    """``path``, ``size_mib`` to what the model says of itself.

    ``path`` is a ``torch.export`` archive if ``onnx`` is given: where its ONNX is written to.
    """
    limits = OnnxLimits(size_mib=arguments["size_mib"])
    path = Path(arguments["path"])
    if arguments.get("onnx"):
        from variants.checks.archive_check import ArchiveLimits, check_archive, extract_onnx

        archive_limits = ArchiveLimits(size_mib=2 * limits.size_mib, onnx=limits)
        check_archive(path, limits=archive_limits)
        onnx = Path(arguments["onnx"])
        extract_onnx(path, onnx, limits=archive_limits)
        path = onnx
    return asdict(check_model(path, limits=limits))


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
    from variants.checks.onnx_check import parse_model

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
    ``judged_output``, ``along``, ``bucket``.
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


class HeldVariant:
    """The one variant that this process holds, for ``profiler.sandbox.probe``."""

    def __init__(self) -> None:
        self._trial: Trial
        self._rows: list[Tensor]
        self._data: dict[str, Tensor]

    def load(self, arguments: Arguments, announce: Announce) -> dict[str, Any]:
        """``spec``, ``threads``, ``data`` (npz), ``cores``, ``gpu`` to what loading cost."""
        if arguments["cores"]:
            pin(arguments["cores"])
        spec = load_spec(arguments["spec"])
        with np.load(arguments["data"], allow_pickle=False) as data:
            self._data = {name: data[name] for name in data.files}
        self._rows = [self._data[tensor.name] for tensor in spec.inputs]
        self._trial = Trial(spec, int(arguments["threads"]), self._rows, gpu=arguments["gpu"])
        found = self._trial.load()
        cold_load_s = found.cold_load_s + imported.seconds
        return {"load_s": found.load_s, "cold_load_s": cold_load_s}

    def turn(self, arguments: Arguments, announce: Announce) -> dict[str, Any]:
        """The arguments of ``Trial.turn`` to the times of its runs."""
        return asdict(self._trial.turn(**arguments))

    def weigh(self, arguments: Arguments, announce: Announce) -> dict[str, Any]:
        """``batch_sizes`` to the memory that serving them takes."""
        weight = self._trial.weigh(arguments["batch_sizes"])
        return {"memory_mib": None} if weight is None else weight._asdict()

    def energy(self, arguments: Arguments, announce: Announce) -> dict[str, Any]:
        """``batch_size`` and ``share`` to the joules that a batch takes, where they can be read."""
        return {"energy_j": self._trial.energy(arguments["batch_size"], arguments["share"])}

    def judge(self, arguments: Arguments, announce: Announce) -> dict[str, Any]:
        """``truth`` (an array of the data), ``metric``, ``along``, ``reference`` and ``keep`` (npy
        files).

        The first output is compared with the reference's, and kept, where files are named.
        """
        truth = self._data[arguments["truth"]]
        told = seldom(announce, len(truth))
        scores = answers(
            self._trial.runtime, self._rows, batch_size=arguments["batch_size"], told=told
        )
        if arguments["keep"]:
            np.save(arguments["keep"], scores, allow_pickle=False)
        reference = None
        if not arguments["reference"]:  # the model itself: quantised ones scale by the whole batch
            check_alone(self._trial.runtime, self._rows, scores)
        else:
            reference = np.load(arguments["reference"], allow_pickle=False)
        return asdict(judge(scores, truth, arguments["metric"], reference, arguments["along"]))


def seldom(announce: Announce, total: int) -> Callable[[int], None]:
    """Announces that nothing is done yet and the first that is, and then every now and then."""
    told_s, first = -inf, True

    def told(done: int) -> None:
        nonlocal told_s, first
        now_s = time.monotonic()
        if now_s - told_s >= TELL_EVERY_S or (first and done):
            told_s, first = now_s, first and not done
            announce(done, total)

    told(0)
    return told


_held = HeldVariant()
METHODS: dict[str, Callable[[Arguments, Announce], dict[str, Any]]] = {
    "check": check,
    "fix_axis": fix_axis,
    "text_inputs": text_inputs,
    "text_rows": text_rows,
    "tokenizer": tokenizer,
    "join": join,
    "plain": plain,
    "build": build,
    "change": change,
    "sizes": sizes,
    "freed": freed,
    "load": _held.load,
    "turn": _held.turn,
    "weigh": _held.weigh,
    "energy": _held.energy,
    "judge": _held.judge,
}


def load_spec(values: Mapping[str, Any]) -> LoadSpec:
    """A load spec from plain JSON values."""
    return LoadSpec(
        task=TaskName(values["task"]),
        variant=VariantName(values["variant"]),
        runtime=values["runtime"],
        artifact=Digest(values["artifact"]),
        path=values["path"],
        inputs=tensor_specs(values["inputs"]),
        outputs=tensor_specs(values["outputs"]),
        latency=(),
        memory_mib=0.0,
        load_s=0.0,
        options=tuple((str(name), str(value)) for name, value in values["options"]),
        device_kind=values.get("device_kind", ""),
    )


def tensor_specs(values: list[Mapping[str, Any]]) -> tuple[TensorSpec, ...]:
    """Tensor specs from plain JSON values."""
    return tuple(
        TensorSpec(name=v["name"], dtype=v["dtype"], shape=tuple(v["shape"])) for v in values
    )


class Imported:
    """How long the back end's import took."""

    seconds = 0.0


imported = Imported()


def import_back_end(runtime: str) -> None:
    """Import what a runtime needs; what is missing, the runtime will name."""
    started = time.perf_counter()
    with suppress(ImportError, OSError):
        import_libraries(runtime)
    imported.seconds = time.perf_counter() - started


def restrain(parent: int) -> None:
    """Die with the parent, gain no privileges, dump no core, and go first where memory runs out.

    Ray gives the processes that answer queries the highest score, by which the kernel picks whom it
    kills for want of memory. With less, a model that takes too much would outlive all of them.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit("the parent has ended")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when this ends
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(f"{FIRST_TO_GO}\n")


def limit_memory(memory_mib: float, threads: int) -> None:
    """Let this process map no more than so much memory beyond what is mapped now, and no more than
    it may anyway (``ulimit -v``): who has no privileges cannot raise that."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    mapped = pages * resource.getpagesize()
    limit = mapped + int((memory_mib + PER_THREAD_MIB * (threads + 2)) * 2**20)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def answer(request: Mapping[str, Any], announce: Announce) -> dict[str, Any]:
    """The result or the refusal of one call, as plain JSON values; never an exception."""
    try:
        return {"result": METHODS[request["method"]](request["arguments"], announce)}
    except VariantNotBuilt as error:
        return {"error": error.message, "kind": "VariantNotBuilt"}
    except InvalidArtifact as error:
        return {"error": error.message}
    except ModellessError as error:
        if wants_memory(error):
            return {"error": TOO_MUCH_MEMORY, "kind": "TrialTooLarge"}
        return {"error": error.message.splitlines()[0][:500]}
    except MemoryError:
        return {"error": TOO_MUCH_MEMORY, "kind": "TrialTooLarge"}
    except Exception as error:
        return {"error": f"it failed unexpectedly: {type(error).__name__}: {error}"[:500]}


def serve(requests: TextIO, replies: TextIO) -> None:
    """Answer calls until the other side closes."""

    def send(reply: Mapping[str, Any]) -> None:
        replies.write(json.dumps(reply) + "\n")
        replies.flush()

    for line in requests:
        send(answer(json.loads(line), lambda *how_far: send({"progress": how_far})))


def main() -> None:
    parent, memory_mib, threads, runtime, device = sys.argv[1:]
    # Libraries print: only this process's own lines may reach the parent.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    restrain(int(parent))
    import_back_end(runtime)  # its libraries are not the model's memory
    if device == "cpu":  # else the parent looks at what is resident
        limit_memory(float(memory_mib), int(threads))
    serve(sys.stdin, replies)


if __name__ == "__main__":
    main()
