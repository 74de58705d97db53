"""From a PyTorch module to a program that answers any batch, row by row, and keeps nothing."""

import inspect
import io
import logging
import re
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path
from typing import Any

from controlplane.client.exporting.agreement import Arrays, close
from controlplane.client.exporting.example_inputs import Examples, dtype_name
from controlplane.client.exporting.exported import DTYPES, ExportError, check_names
from controlplane.client.exporting.functional import functional
from variants.types import TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A program and what its module answers."""

    program: Any
    """``torch.export.ExportedProgram``: inputs by position, a tuple of outputs, no example inputs
    and no place of the user's code."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    answers: Arrays
    """Answers of the module itself to the examples."""


def trace(module: Any, examples: Examples, output_names: Sequence[str] | None) -> Traced:
    """Export a module in evaluation mode, once it is seen to be servable.

    Raises:
        ExportError: it does not run, keeps a state, draws random numbers, or is bound to a batch.
    """
    import torch

    _check_tensors(module)
    with evaluated(module):
        found, answers = _answers(module, examples)
        names = check_names(
            found if output_names is None else output_names, count=len(answers), what="output"
        )
        if both := set(names) & set(examples.names):
            raise ExportError(f"{min(both)!r} names an input and an output; give other names")
        outputs = tuple(
            _output_spec(name, answer, len(examples.tensors[0]))
            for name, answer in zip(names, answers, strict=True)
        )
        batch = torch.export.Dim("batch")
        try:
            with quiet_torch():
                program = torch.export.export(
                    _positional(module, examples),
                    examples.tensors,
                    dynamic_shapes=tuple({0: batch} for _ in examples.tensors),
                )
        except Exception as error:  # tracing runs the user's code and raises whatever that raises
            raise ExportError(why_not_traced(error)) from error
        _refuse_random_numbers(program)
        _check_rows_alone(module, examples, names, answers)
        try:
            with quiet_torch():
                program = functional(program)
        except Exception as error:  # torch's decompositions raise whatever they like
            raise ExportError(why_not_traced(error)) from error
    _check_batch(program, names)
    _forget_the_user(program)
    return Traced(
        program=program,
        inputs=tuple(
            TensorSpec(name=name, dtype=dtype_name(tensor), shape=tuple(tensor.shape[1:]))
            for name, tensor in zip(examples.names, examples.tensors, strict=True)
        ),
        outputs=outputs,
        answers={name: answer.numpy() for name, answer in zip(names, answers, strict=True)},
    )


@contextmanager
def evaluated(module: Any) -> Iterator[None]:
    """The module in evaluation mode, without gradients; then as it was.

    Whatever forward keeps in attributes goes, and buffers have their values again.
    """
    import torch

    parts = list(module.modules())
    training = module.training
    attributes = [dict(part.__dict__) for part in parts]
    held = [(dict(part._parameters), dict(part._buffers)) for part in parts]
    values = [(buffer, _writes(buffer), buffer.clone()) for buffer in module.buffers()]
    try:
        module.eval()
        with torch.no_grad():
            yield
    finally:
        # Adapters that fold themselves into the weights for evaluation undo it in train().
        if training:
            module.train()
        for part, before, (parameters, buffers) in zip(parts, attributes, held, strict=True):
            part.__dict__.clear()
            part.__dict__.update(before)
            for kept, now in ((parameters, part._parameters), (buffers, part._buffers)):
                now.clear()
                now.update(kept)
        with torch.no_grad():
            for buffer, writes, value in values:
                if _writes(buffer) != writes:
                    buffer.copy_(value)


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Without what PyTorch and its exporters say on the way; what matters is in their errors."""
    known = logging.root.manager.loggerDict
    handlers = {
        handler: handler.level
        for name, logger in list(known.items())
        if name.split(".")[0] == "torch" and isinstance(logger, logging.Logger)
        for handler in logger.handlers
    }
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(redirect_stderr(io.StringIO()))
        for handler, level in handlers.items():
            stack.callback(handler.setLevel, level)
            handler.setLevel(logging.CRITICAL + 1)
        yield


def _check_tensors(module: Any) -> None:
    from torch.nn.parameter import is_lazy

    for name, tensor in _held(module).items():
        if is_lazy(tensor):
            raise ExportError(f"{name!r} has no shape yet; run the module once before exporting it")
        if tensor.device.type != "cpu":
            raise ExportError(f"the module lies on {tensor.device}; move it with .cpu() first")


def _answers(module: Any, examples: Examples) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """What the module answers, and what it calls its answers; refuses one that changes itself."""
    import torch

    inputs = tuple(tensor.clone() for tensor in examples.tensors)
    before = _held(module)
    writes = [_writes(tensor) for tensor in (*before.values(), *inputs)]
    out = _run(module, inputs, examples.keywords, "the example inputs")
    after = _held(module)
    rebound = before.keys() != after.keys() or any(before[at] is not after[at] for at in before)
    if rebound or writes != [_writes(tensor) for tensor in (*before.values(), *inputs)]:
        raise ExportError(
            "forward changes the module or its inputs; an answer may depend on its inputs only"
        )
    names, outputs = _flat(out)
    for name, tensor in zip(names, outputs, strict=True):
        if not isinstance(tensor, torch.Tensor):
            raise ExportError(f"output {name!r} is a {type(tensor).__name__}, not a tensor")
    return names, tuple(tensor.detach().contiguous() for tensor in outputs)


def _held(module: Any) -> dict[str, Any]:
    """Parameters and buffers by their names."""
    return dict([*module.named_parameters(), *module.named_buffers()])


def _check_rows_alone(
    module: Any, examples: Examples, names: Sequence[str], answers: Sequence[Any]
) -> None:
    """Rows of different clients share a batch, so none may see another."""
    last = len(examples.tensors[0]) - 1
    for row in (0, last):
        tensors = tuple(tensor[row : row + 1].clone() for tensor in examples.tensors)
        alone = _flat(_run(module, tensors, examples.keywords, "a single row"))[1]
        for name, one, all_rows in zip(names, alone, answers, strict=True):
            if not close(one.numpy(), all_rows[row : row + 1].numpy()).all():
                raise ExportError(
                    f"output {name!r} of a row depends on the other rows of its batch; "
                    "in evaluation mode every row must be answered for itself"
                )


def _writes(tensor: Any) -> int:
    """How often a tensor was written to; those made in inference mode do not count."""
    return -1 if tensor.is_inference() else int(tensor._version)


def _run(module: Any, tensors: Sequence[Any], keywords: Sequence[str] | None, on: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _call(module, tensors, keywords)
    except Exception as error:  # whatever the user's code raises
        raise ExportError(
            f"the module does not run on {on}: {first_line(error)}{place(error)}"
        ) from error


def _call(module: Any, tensors: Sequence[Any], keywords: Sequence[str] | None) -> Any:
    if keywords is None:
        return module(*tensors)
    return module(**dict(zip(keywords, tensors, strict=True)))


def _flat(out: Any) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Names and values of what forward returned."""
    if isinstance(out, Mapping):
        return tuple(map(str, out)), tuple(out.values())
    if not isinstance(out, tuple | list):
        return ("scores",), (out,)
    fields = getattr(out, "_fields", None)
    names = fields or ("scores", *(f"output_{index}" for index in range(1, len(out))))
    return tuple(names[: len(out)]), tuple(out)


def _positional(module: Any, examples: Examples) -> Any:
    """The module behind one calling convention: tensors by position, a tuple of tensors.

    Its arguments are called as the inputs are, where Python can, and so are the program's.
    """
    from torch import nn

    class Positional(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *tensors: Any) -> tuple[Any, ...]:
            return _flat(_call(self.module, tensors, examples.keywords))[1]

    names = examples.names
    if not all(name.isidentifier() and not iskeyword(name) for name in names) or "self" in names:
        names = tuple(f"input_{index}" for index in range(len(names)))
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    Positional.forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, kind) for name in ("self", *names)]
    )
    # The flag alone: eval() would reach into the module again.
    wrapped = Positional()
    wrapped.training = False
    return wrapped


def _output_spec(name: str, answer: Any, rows: int) -> TensorSpec:
    if dtype_name(answer) not in DTYPES:
        raise ExportError(
            f"output {name!r} is {dtype_name(answer)}; it must be one of {', '.join(DTYPES)}"
        )
    if answer.ndim == 0 or len(answer) != rows:
        shape = f"has shape {tuple(answer.shape)}" if answer.ndim else "is a scalar"
        raise ExportError(f"output {name!r} {shape} for {rows} rows; it needs one row for each")
    if answer.isnan().any():
        raise ExportError(f"output {name!r} is NaN for some example inputs")
    return TensorSpec(name=name, dtype=dtype_name(answer), shape=tuple(answer.shape[1:]))


def _refuse_random_numbers(program: Any) -> None:
    import torch

    for node in _nodes(program):
        target = node.target
        if torch.Tag.nondeterministic_seeded not in getattr(target, "tags", ()):
            continue
        parameters = target._schema.arguments
        given = {one.name: one.default_value for one in parameters if one.has_default_value()}
        given |= dict(zip((one.name for one in parameters), node.args, strict=False))
        given |= node.kwargs
        off = any(given.get(name, True) is False for name in ("train", "training"))
        if off or any(given.get(name, 1) == 0 for name in ("p", "dropout_p")):
            continue
        what = (
            "drops out at random in evaluation mode too"
            if "dropout" in str(target)
            else ("draws random numbers")
        )
        raise ExportError(f"forward {what} ({target}{place_of(node)})")


def _check_batch(program: Any, names: Sequence[str]) -> None:
    """One row of every output for each row of the inputs, and no other axis that varies."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    rows = str(values[program.graph_signature.user_inputs[0]].shape[0])
    for name, node in zip(names, program.graph_signature.user_outputs, strict=True):
        first, *rest = (str(size) for size in values[node].shape)
        if first != rows:
            raise ExportError(f"output {name!r} does not have one row for each row of the inputs")
        for axis, size in enumerate(rest, start=1):
            if not size.isdigit():
                raise ExportError(
                    f"axis {axis} of output {name!r} varies; only the batch axis, the first, may"
                )


def _forget_the_user(program: Any) -> None:
    """Drop the rows he tried, the lines of his code, and the data that his tensors are a part of.

    A buffer that is one row of a data set shares the storage of all of it, and storages are what is
    saved.
    """
    program.example_inputs = None
    for node in _nodes(program):
        for told in ("stack_trace", "from_node"):
            node.meta.pop(told, None)
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    owned: dict[tuple[Any, ...], Any] = {}
    for spec in program.graph_signature.input_specs:
        kept = program.state_dict if spec.target in program.state_dict else program.constants
        tensor = kept.get(spec.target)
        if tensor is None or tensor.untyped_storage().nbytes() == tensor.nbytes:
            continue
        same = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if same not in owned:
            owned[same] = _own(tensor)
        kept[spec.target] = owned[same]
        meta = placeholders[spec.arg.name].meta
        meta["val"] = meta["val"].fake_mode.from_tensor(owned[same])


def _own(tensor: Any) -> Any:
    """The same tensor with a storage of its own."""
    import torch

    copy = tensor.detach().clone(memory_format=torch.contiguous_format)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(copy, requires_grad=tensor.requires_grad)
    return copy


def _nodes(program: Any) -> Iterator[Any]:
    """Nodes of the graph and of the graphs within it."""
    for part in program.graph_module.modules():
        if hasattr(part, "graph"):
            yield from part.graph.nodes


# -- why a module was not exported, in one sentence, where PyTorch takes a page -------------------


def why_not_traced(error: Exception) -> str:
    """One sentence in place of the page that ``torch.export`` writes about a failure."""
    text, where = str(error), place(error)
    if type(error).__name__ == "GuardOnDataDependentSymNode":
        return (
            f"forward decides by the values of a tensor{where}, which no exported program can; "
            "torch.where computes both sides and picks"
        )
    if fixed := re.search(r"specialized it to be a constant \((\d+)\)", text):
        return (
            f"forward is bound to the {fixed[1]} rows of the examples; take the batch from the "
            "inputs, as in x.view(x.shape[0], ...)"
        )
    if guard := re.search(r"satisfy the generated guard (.+)", text):
        return f"forward does not take every number of rows: {guard[1].rstrip('.')}"
    return f"torch.export cannot trace the module: {first_line(error)}{where}"


def first_line(error: BaseException) -> str:
    """The first line of an error's message; the name of its type if it has no message."""
    lines = str(error).strip().splitlines()
    return lines[0].strip().rstrip(".") if lines else type(error).__name__


def place(error: BaseException) -> str:
    """The last line outside of PyTorch and of this package that an error came through."""
    import torch

    foreign = (f"{Path(torch.__file__).parent}/", f"{Path(__file__).parent}/", "<")
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(foreign):
            return f" at {Path(frame.filename).name}:{frame.lineno}"
    return ""


def place_of(node: Any) -> str:
    """The last line outside of PyTorch that a node of a graph comes from."""
    import torch

    found = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    own = f"{Path(torch.__file__).parent}/"
    outside = [(name, line) for name, line in found if not name.startswith(own)]
    return f" at {Path(outside[-1][0]).name}:{outside[-1][1]}" if outside else ""
