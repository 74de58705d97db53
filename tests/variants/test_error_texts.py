"""Error texts follow one rule: no capital at their beginning but that of a name, no full stop at
their end. They stand behind a code, a file's name or ``error:``, so they are parts of a line.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import variants.errors

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("variants", "planner", "workers", "profiler", "controlplane")
NAMES = {
    "CUDA", "Content-Encoding", "Host", "Inference-Header-Content-Length", "NVML", "ONNX", "Ray",
    "Ray's", "TensorRT",
}  # fmt: skip
"""What begins with a capital wherever it stands, beside names of settings."""
ERRORS = {name for name, each in vars(variants.errors).items() if isinstance(each, type)}


def texts(source: str) -> Iterator[tuple[int, str]]:
    """The line and the text of each error that a module makes, ``{}`` for what is filled in."""
    module = ast.parse(source)
    constants = {
        target.id: [node.value]
        for node in module.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for function in ast.walk(module):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
            yield from _of(function, constants)


def _of(function: ast.AST, constants: dict[str, list[ast.expr]]) -> Iterator[tuple[int, str]]:
    said: dict[str, list[ast.expr]] = {}
    own = list(_own(function))
    for node in own:
        if isinstance(node, ast.Assign | ast.AugAssign):
            target = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
            if isinstance(target, ast.Name):
                said.setdefault(target.id, []).append(node.value)
    for node in own:
        if isinstance(node, ast.Call) and (text := _argument(node)) is not None:
            given = (
                said.get(text.id, constants.get(text.id, []))
                if isinstance(text, ast.Name)
                else [text]
            )
            for each in given:
                for one in [each.body, each.orelse] if isinstance(each, ast.IfExp) else [each]:
                    if isinstance(one, ast.JoinedStr) or (
                        isinstance(one, ast.Constant) and isinstance(one.value, str)
                    ):
                        yield one.lineno, _flat(one)


def _own(function: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            yield from _own(node)


def _argument(call: ast.Call) -> ast.expr | None:
    """The text that an error is made with."""
    name = getattr(call.func, "id", getattr(call.func, "attr", ""))
    if name == "Refusal":
        return next((each.value for each in call.keywords if each.arg == "message"), None)
    return call.args[0] if name in ERRORS and call.args else None


def _flat(text: ast.Constant | ast.JoinedStr) -> str:
    parts = text.values if isinstance(text, ast.JoinedStr) else [text]
    return "".join(str(each.value) if isinstance(each, ast.Constant) else "{}" for each in parts)


def fault(text: str) -> str | None:
    """What is wrong with a text by the rule."""
    first = text.split(maxsplit=1)[0].rstrip(":,") if text.strip() else ""
    if first[:1].isupper() and first not in NAMES and not first.startswith("MODELLESS_"):
        return "begins with a capital"
    if text.endswith(".") and not text.endswith("..."):
        return "ends with a full stop"
    return None


def test_texts_of_errors_have_no_capital_and_no_full_stop() -> None:
    found, wrong = 0, []
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        for line, text in texts(path.read_text()):
            found += 1
            if (what := fault(text)) is not None:
                wrong.append(f"{path.relative_to(ROOT)}:{line} {what}: {text[:60]!r}")
    assert found > 600
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("there is no task {}", None),
        ("Ray could not be started", None),
        ("MODELLESS_PORT is taken", None),
        ("No worker is running", "begins with a capital"),
        ("no worker is running.", "ends with a full stop"),
    ],
)
def test_the_rule(text: str, what: str | None) -> None:
    assert fault(text) == what


def test_texts_are_found_where_a_name_holds_them() -> None:
    source = (
        "def f():\n    text = 'a'\n    if x:\n        text = f'b {y}'\n    raise NotFound(text)"
    )
    assert [text for _, text in texts(source)] == ["a", "b {}"]


def test_texts_are_found_where_a_constant_holds_them() -> None:
    source = "GONE = 'it is gone'\ndef f():\n    raise NotFound(GONE)"
    assert [text for _, text in texts(source)] == ["it is gone"]
