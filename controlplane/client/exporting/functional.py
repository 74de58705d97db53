"""A traced program without operators that servers refuse: the same answers by other means.

A server takes operators from a list (``variants/checks/archive/program_operators.py``): none that
changes a tensor in place, and none whose result is memory that was never set. So every program is
made functional, what it takes unset is set to zeros, and what is not on the list is decomposed into
operators that are. Whatever is left then is refused, by the same check that the server makes.
"""

from typing import Any

from variants.checks.archive.program_operators import OPERATORS


def functional(program: Any) -> Any:
    """The program (a ``torch.export.ExportedProgram``) in operators of the list, if it can be."""
    import torch

    program = without_effects(program)
    if all(_is_listed(node.target) for node in _calls(program)):
        return program
    decompositions = torch.export.default_decompositions().materialize()
    others = {op: how for op, how in decompositions.items() if not _is_listed(op)}
    return program.run_decompositions({**others, **_zeros_instead()})


def without_effects(program: Any) -> Any:
    """The program without writing in place and without unset memory; operators stay whole."""
    return program.run_decompositions(_zeros_instead())


def _is_listed(operator: Any) -> bool:
    """Whether servers take an operator; what is none of ATen's is not ours to decompose."""
    name = str(operator)
    return not name.startswith("aten.") or name.removeprefix("aten.") in OPERATORS


def _calls(program: Any) -> list[Any]:
    return [node for node in program.graph.nodes if node.op == "call_function"]


def _zeros_instead() -> dict[Any, Any]:
    """Zeros in the place of memory that is not set: any content of it would be right."""
    import torch

    aten = torch.ops.aten

    def strided(size: Any, stride: Any, **how: Any) -> Any:
        # Lies in memory as its strides say, as what is done with it may look at that.
        order = sorted(range(len(size)), key=lambda axis: stride[axis], reverse=True)
        held = torch.zeros([size[axis] for axis in order], **how)
        return held.permute([order.index(axis) for axis in range(len(size))])

    def new_strided(like: Any, size: Any, stride: Any, **how: Any) -> Any:
        return strided(size, stride, **{"dtype": like.dtype, "device": like.device} | _said(how))

    return {
        aten.empty.memory_format: lambda size, *, memory_format=None, **how: _formatted(
            torch.zeros(size, **_said(how)), memory_format
        ),
        aten.empty_like.default: torch.zeros_like,
        aten.new_empty.default: lambda like, size, **how: like.new_zeros(size, **_said(how)),
        aten.empty_strided.default: lambda size, stride, **how: strided(size, stride, **_said(how)),
        aten.new_empty_strided.default: new_strided,
        aten.empty_permuted.default: lambda size, order, **how: torch.zeros(
            [size[axis] for axis in order], **_said(how)
        ).permute([order.index(axis) for axis in range(len(size))]),
    }


def _said(how: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in how.items() if value is not None}


def _formatted(tensor: Any, memory_format: Any) -> Any:
    return tensor if memory_format is None else tensor.contiguous(memory_format=memory_format)
