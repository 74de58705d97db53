"""The graph of a PyTorch program written as one Python function.

The function is what a person would write: one line for each operator, and each intermediate tensor
let go after its last use. Its names are our own; the file's names are keys of a dictionary here and
never become code.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from variants.checks.archive import program_words as words
from variants.checks.json_shape import Misfit
from variants.errors import RuntimeFailed

DTYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32",
    8: "float64", 12: "bool", 13: "bfloat16",
}  # fmt: skip
"""Schema number to torch's name."""
_LAYOUTS = {7: "strided"}
_MEMORY_FORMATS = {
    1: "contiguous_format", 2: "channels_last", 3: "channels_last_3d", 4: "preserve_format",
}  # fmt: skip
_ON_SIZES: Mapping[str, Callable[..., Any]] = {
    **{
        f"_operator.{name}": getattr(operator, name)
        for name in (
            "add", "and_", "eq", "floordiv", "ge", "getitem", "gt", "le", "lt", "mod", "mul", "ne",
            "neg", "or_", "pos", "pow", "sub", "truediv",
        )
    },
    "math.trunc": int,
    "torch._sym_sqrt": math.sqrt,
    "torch.sym_float": float,
    "torch.sym_int": int,
    "torch.sym_max": max,
    "torch.sym_min": min,
    "torch.sym_not": operator.not_,
}  # fmt: skip
_PROMISES = ("_assert", "sym_constrain_range")
"""Operators that compute nothing. What they promise holds in the precision that was exported."""
_TRAINING = ("train", "training")
_KEYWORD = 2

_Json = Mapping[str, Any]


class Name(str):
    """A variable; it stands in lists of values as itself, so that ``repr`` writes code."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Source:
    """Takes a graph's nodes one by one and becomes a function in the end.

    ``dtype``, a ``torch.dtype``, replaces every floating-point type that a node names, and
    ``device`` every device.
    """

    def __init__(self, dtype: Any, device: str) -> None:
        import torch

        self._dtype = dtype
        self._device = device
        self._values: dict[str, Name] = {}
        """Variables by their names in the file."""
        self._arguments: list[Name] = []
        self._steps: list[tuple[Name, str, list[Name]]] = []
        """What a line sets, the line, and the variables that it reads."""
        self._globals: dict[str, Any] = {
            "__builtins__": {}, "torch": torch, "device": torch.device,
            "inf": math.inf, "nan": math.nan,
        }  # fmt: skip

    def argument(self, name: str) -> None:
        """The next argument of the function."""
        variable = Name(f"a{len(self._arguments)}")
        self._arguments.append(variable)
        self._values[name] = variable

    def node(self, node: _Json) -> None:
        """The next operator.

        Raises:
            RuntimeFailed: it is none that is allowed here, or has an argument that is not.
        """
        target = _operator(node["target"])
        if target is None:
            return
        given = [(each["name"], each["kind"], self._value(each["arg"])) for each in node["inputs"]]
        if any(name in _TRAINING and value is True for name, _, value in given):
            raise RuntimeFailed(
                "the archive's program is in training mode; call eval() before exporting it"
            )
        positional = [value for _, kind, value in given if kind != _KEYWORD]
        keywords = {name: value for name, kind, value in given if kind == _KEYWORD}
        made = self._step(target, positional, keywords)
        schema = getattr(target, "_schema", None)
        if schema and self._dtype is not None and _makes_a_tensor(schema):
            made = self._step(self._cast, [made], {})
        self._keep(made, node["outputs"])

    def function(self, results: Sequence[str]) -> Callable[..., tuple[Any, ...]]:
        """The function, which takes the arguments in their order and returns a tuple."""
        returned = [self._values[name] for name in results]
        used = set(returned)
        lines = [f"    return ({''.join(f'{name}, ' for name in returned)})"]
        for sets, line, reads in reversed(self._steps):
            done = sorted({name for name in (*reads, sets) if name not in used})
            used.update(reads)
            free = "".join(f"{name} = " for name in done) + "None" if done else ""
            lines.append(f"    {line}; {free}" if free else f"    {line}")
        head = f"def program({', '.join(self._arguments)}):"
        code = "\n".join([head, *reversed(lines)])
        scope: dict[str, Callable[..., tuple[Any, ...]]] = {}
        exec(compile(code, "<program>", "exec"), self._globals, scope)  # noqa: S102 -- ours
        return scope["program"]

    def _step(self, target: Any, positional: list[Any], keywords: Mapping[str, Any]) -> Name:
        made, called = Name(f"v{len(self._steps)}"), f"f{len(self._steps)}"
        self._globals[called] = target
        written = "".join(f"{value!r}, " for value in positional)
        reads = [*_names(positional), *_names(list(keywords.values()))]
        self._steps.append((made, f"{made} = {called}({written}**{dict(keywords)!r})", reads))
        return made

    def _keep(self, made: Name, outputs: Sequence[_Json]) -> None:
        """Call what an operator gives as the file does: one value, several, or a list."""
        kinds = [next(iter(each.items())) for each in outputs]
        if len(kinds) == 1 and kinds[0][0] != "as_tensors":
            kind, content = kinds[0]
            if kind != "as_none":
                self._values[_called(content)] = made
            return
        if len(kinds) == 1:
            kinds = [("as_tensor", each) for each in kinds[0][1]]
        for index, (kind, content) in enumerate(kinds):
            if kind != "as_none":
                self._values[_called(content)] = self._step(operator.getitem, [made, index], {})

    def _value(self, argument: _Json) -> Any:
        """An argument: a variable, a plain value, or a list of them."""
        ((kind, content),) = argument.items()
        match kind:
            case "as_none":
                return None
            case "as_bool" | "as_int" | "as_string" | "as_bools" | "as_ints" | "as_strings":
                return content
            case "as_float":
                return float(content)  # infinities are written as text
            case "as_floats":
                return [float(each) for each in content]
            case "as_tensor" | "as_sym_int" | "as_sym_float" | "as_sym_bool":
                return self._one(content)
            case "as_tensors" | "as_sym_ints" | "as_sym_floats" | "as_sym_bools":
                return [self._one(each) for each in content]
            case "as_optional_tensor":
                return self._value(content)
            case "as_optional_tensors":
                return [self._value(each) for each in content]
            case "as_scalar_type":
                return self._type(_torch(DTYPES[content]))
            case "as_memory_format":
                return _torch(_MEMORY_FORMATS[content])
            case "as_layout":
                return _torch(_LAYOUTS[content])
            case "as_device":
                return _torch("device")(self._device)
        raise RuntimeFailed(f"the archive's program has an argument {kind}, which is not served")

    def _one(self, content: _Json) -> Any:
        """``{"name": ...}``, ``{"as_name": ...}`` or ``{"as_int": ...}``."""
        ((kind, value),) = content.items()
        if kind in ("name", "as_name"):
            return self._values[value]
        return float(value) if kind == "as_float" else value

    def _cast(self, made: Any) -> Any:
        return made.to(self._dtype) if made.is_floating_point() else made

    def _type(self, dtype: Any) -> Any:
        return self._dtype if self._dtype is not None and dtype.is_floating_point else dtype


def _operator(target: str) -> Any:
    """What a target names: an ATen operator or arithmetic; None for one that computes nothing.

    Raises:
        RuntimeFailed: it is anything else.
    """
    try:
        words.target(target)
    except Misfit as misfit:
        raise RuntimeFailed(f"an operator of the archive's program {misfit}") from None
    if target in _ON_SIZES:
        return _ON_SIZES[target]
    if not target.startswith("torch.ops.aten."):
        raise RuntimeFailed(f"the archive's program uses {target}, which is not served")
    name, overload = target.split(".")[3:]
    if name.startswith(_PROMISES):
        return None
    import torch

    found = getattr(getattr(torch.ops.aten, name, None), overload, None)
    if not isinstance(found, torch._ops.OpOverload) or not found._schema.returns:
        raise RuntimeFailed(f"this PyTorch has no operator {target}")
    if found._schema.is_mutable:
        raise RuntimeFailed(f"in this PyTorch {target} changes a tensor in place")
    return found


def _makes_a_tensor(schema: Any) -> bool:
    """Whether an operator makes one of nothing: in torch's usual type, unless it is told one."""
    of_tensors = any("Tensor" in str(argument.type) for argument in schema.arguments)
    return not of_tensors and str(schema.returns[0].type) == "Tensor"


def _torch(name: str) -> Any:
    import torch

    return getattr(torch, name)


def _called(content: _Json) -> str:
    """The name of a result: a tensor's ``name``, a number's ``as_name``."""
    return str(content["name"] if "name" in content else content["as_name"])


def _names(values: Sequence[Any]) -> list[Name]:
    """The variables among values and in lists of them."""
    found: list[Name] = []
    for value in values:
        if isinstance(value, Name):
            found.append(value)
        elif isinstance(value, list):
            found += _names(value)
    return found
