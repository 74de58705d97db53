"""The words that a ``torch.export`` program may use where torch makes code of them.

``torch.export.load`` evaluates the text of symbolic sizes as Python, looks operators up by any
dotted path below ``torch``, and writes names and guards into source code that it executes. Each
kind here takes only what can do nothing but compute.
"""

import ast
import keyword
import re
from typing import Any

from variants.checks.archive.program_operators import OPERATORS
from variants.checks.json_shape import INT64, Misfit, shown, text

_ATEN = "torch.ops.aten."
_OPERATOR = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}\.[A-Za-z_][A-Za-z0-9_]{0,99}")
_REMEDY = (
    "export the model again with modelless.export, which does without it where that is possible"
)
_OF_SIZES = frozenset({
    "_operator.add", "_operator.and_", "_operator.eq", "_operator.floordiv", "_operator.ge",
    "_operator.getitem", "_operator.gt", "_operator.le", "_operator.lt", "_operator.mod",
    "_operator.mul", "_operator.ne", "_operator.neg", "_operator.or_", "_operator.pos",
    "_operator.pow", "_operator.sub", "_operator.truediv", "math.trunc", "torch._sym_sqrt",
    "torch.ops.higher_order.cond", "torch.ops.higher_order.wrap_with_autocast",
    "torch.ops.higher_order.wrap_with_set_grad_enabled", "torch.sym_float", "torch.sym_int",
    "torch.sym_ite", "torch.sym_max", "torch.sym_min", "torch.sym_not",
})  # fmt: skip
"""Arithmetic on sizes, and the operators that run a graph inside a graph."""

_SYMBOL = re.compile(r"(s|u|zf|zuf)[0-9]{1,5}")
"""torch counts up to the number of a u or zuf, so it has to be a small one."""
_OF_SYMBOLS = frozenset({
    "Add", "And", "CeilDiv", "CeilToInt", "CleanDiv", "Equality", "FloatTrueDiv", "FloorDiv",
    "FloorToInt", "GreaterThan", "Identity", "IntTrueDiv", "LessThan", "Max", "Min", "Mod",
    "ModularIndexing", "Mul", "Not", "Or", "PythonMod", "RoundToInt", "StrictGreaterThan",
    "StrictLessThan", "ToFloat", "TruncToFloat", "TruncToInt", "Unequality", "Where",
})  # fmt: skip
_ASSUMED = frozenset({
    "finite", "integer", "negative", "nonnegative", "nonzero", "positive", "real", "zero",
})  # fmt: skip
_EXPRESSION = re.compile(r"[A-Za-z0-9_ ()\[\]'.,=<>!%*/+-]{1,4000}")
"""No quote, comment or line break that would end what the text is put into."""
_LARGEST_POWER = 8

identifier = text(r"[A-Za-z_][A-Za-z0-9_]{0,499}", "a name")
path = text(r"(?!.*(^|\.)__)[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*", "a module's path")
symbol = text(_SYMBOL.pattern, "a symbol of a size")


def name(value: Any) -> None:
    """A name that torch writes into source code."""
    identifier(value)
    if keyword.iskeyword(value):
        raise Misfit(f"is {value!r}, which is a word of Python's")


def target(value: Any) -> None:
    """An operator that a program may call; ``program_operators`` lists those of ATen."""
    if not isinstance(value, str):
        raise Misfit(f"is {shown(value)}, which is no operator that models may use here")
    operator = value.removeprefix(_ATEN)
    if value in _OF_SIZES or (operator != value and operator in OPERATORS):
        return
    refused = f"is {shown(value)}, which is no operator that models may use here"
    if operator != value and _OPERATOR.fullmatch(operator):
        name = operator.partition(".")[0]
        why = ""
        if name.endswith("_") and not name.endswith("__"):
            why = ", because it changes a tensor in place"
        elif "empty" in name or "resize" in name:
            why = ", because it gives memory that was never set"
        refused = f"{refused}{why}; {_REMEDY}"
    raise Misfit(refused)


def symbolic(value: Any) -> None:
    """An expression of sizes, as sympy writes it; torch evaluates the text."""
    if not _is_symbolic(_parsed(value)):
        raise Misfit(f"is {shown(value)}, which is no arithmetic on sizes")


def guard(value: Any) -> None:
    """A condition on the inputs' sizes; torch writes it into code."""
    if not _is_guard(_parsed(value)):
        raise Misfit(f"is {shown(value)}, which is no condition on sizes")


def _parsed(value: Any) -> ast.expr:
    if not isinstance(value, str) or not _EXPRESSION.fullmatch(value):
        raise Misfit(f"is {shown(value)}, which is no expression")
    try:
        return ast.parse(value, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise Misfit(f"is {shown(value)}, which is no expression") from None


def _is_symbolic(node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        return node.id in ("true", "false")
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and _is_integer(node.operand)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return _is_integer(node)
    called, given = node.func.id, node.args
    if called == "Symbol":
        assumed = all(
            word.arg in _ASSUMED and isinstance(word.value, ast.Constant) for word in node.keywords
        )
        return assumed and len(given) == 1 and _is_text(given[0], _SYMBOL)
    if called == "Float":
        precise = all(w.arg == "precision" and _is_integer(w.value) for w in node.keywords)
        return precise and len(given) == 1 and _is_text(given[0], re.compile(r"-?[0-9.e+-]{1,40}"))
    if node.keywords:
        return False
    if called in ("Integer", "Rational"):
        return 1 <= len(given) <= 2 and all(map(_is_signed, given))
    if called == "Pow":  # of a symbol: a power of powers of numbers is computed at once
        return len(given) == 2 and _is_symbol(given[0]) and _is_small_power(given[1])
    return called in _OF_SYMBOLS and all(map(_is_symbolic, given))


def _is_symbol(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="Symbol")):
            return _is_symbolic(node)
        case _:
            return False


def _is_guard(node: ast.expr) -> bool:
    match node:
        case ast.Compare():
            return all(map(_is_guard, [node.left, *node.comparators]))
        case ast.BoolOp():
            return all(map(_is_guard, node.values))
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            return _is_guard(node.operand)
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv() | ast.Mod()):
            return _is_guard(node.left) and _is_guard(node.right)
        case ast.Subscript(value=ast.Call(func=ast.Attribute(value=of, attr="size" | "stride"))):
            call = node.value
            plain = isinstance(call, ast.Call) and not call.args and not call.keywords
            return plain and _is_integer(node.slice) and _is_input(of)
        case _:
            return _is_integer(node)


def _is_input(node: ast.expr) -> bool:
    """``L['pixels']``, ``L['args'][0]``."""
    depth = 0
    while isinstance(node, ast.Subscript) and depth < 4:
        if not _is_integer(node.slice) and not _is_text(node.slice, re.compile(r"[A-Za-z0-9_]+")):
            return False
        node = node.value
        depth += 1
    return depth > 0 and isinstance(node, ast.Name) and node.id == "L"


def _is_integer(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value <= INT64


def _is_signed(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return _is_integer(node)


def _is_small_power(node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
        named = node.func.id == "Integer" and not node.keywords
        node = node.args[0] if named else node
    return isinstance(node, ast.Constant) and node.value in range(_LARGEST_POWER + 1)


def _is_text(node: ast.expr, pattern: re.Pattern[str]) -> bool:
    held = node.value if isinstance(node, ast.Constant) else None
    return isinstance(held, str) and pattern.fullmatch(held) is not None
