"""Tensors from JSON: what is taken, what it becomes, and what a wrong body may cost."""

import math
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.gateway.query.json_tensors import FRACTIONS, OBJECTS
from controlplane.gateway.query.parsing import parse_v1
from controlplane.gateway.query.v2.datatypes import V2_NAMES
from controlplane.gateway.query.v2.parsing import parse_v2
from variants.checks.json_shape import shown
from variants.errors import InvalidInput
from variants.figures import counted
from variants.types import Slo, Task, TaskName, TensorSpec

Shape = tuple[int, ...]


def task(dtype: str, *shape: int) -> Task:
    name = TaskName("-".join([dtype, *map(str, shape)]))
    return Task(
        name=name,
        inputs=(TensorSpec(name="x", dtype=dtype, shape=shape),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=(2,)),),
        slo=Slo(latency_ms=100.0),
    )


SHAPES: tuple[Shape, ...] = ((), (1,), (2,), (2, 2), (1, 2, 1))
TASKS = {one.name: one for one in (task(dtype, *shape) for dtype in V2_NAMES for shape in SHAPES)}


# -- a slow reference ---------------------------------------------------------------------------


def shape_of(value: Any) -> Shape | None:
    """The shape of nested lists; ``None`` where they are ragged."""
    if not isinstance(value, list):
        return ()
    shapes = {shape_of(item) for item in value}
    if len(shapes) > 1 or None in shapes:
        return None
    return (len(value), *(shapes.pop() or () if shapes else ()))


def leaves_of(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from leaves_of(item)
    else:
        yield value


def fault_of(leaves: list[Any], dtype: str) -> str | None:
    """What is wrong with the types of the values, one value after the other."""
    kinds = {type(leaf) for leaf in leaves}
    if any(leaf is None for leaf in leaves):
        return "null: only finite numbers can be asked with"
    if any(isinstance(leaf, dict) for leaf in leaves):
        return OBJECTS
    if str in kinds:
        return "text"
    if dtype == "bool":
        found = FRACTIONS if float in kinds else "numbers" if int in kinds else None
    elif dtype.startswith("float"):
        found = "booleans" if bool in kinds else None
    else:
        found = FRACTIONS if float in kinds else "booleans" if bool in kinds else None
    return found


def ragged(rows: list[Any]) -> str:
    """The sentence on rows that are not of one length; which one it is, where all are rows."""
    said = "input 'x' has rows of different lengths"
    for at, row in enumerate(rows):
        if all(isinstance(one, list) for one in rows) and len(row) != len(rows[0]):
            return f"{said}: row 0 is {len(rows[0])} long, row {at} is {len(row)}"
    return said


def expected(inputs: Any, one: Task) -> np.ndarray[Any, Any] | str:
    """The tensor of these rows, or the sentence that refuses them."""
    (spec,) = one.inputs
    dtype = spec.dtype
    said = "[" + ", ".join(["rows", *map(str, spec.shape)]) + "]"
    if isinstance(inputs, dict) and set(inputs) != {"x"}:
        return "'inputs' must be an object with rows for each of: x"
    rows = inputs["x"] if isinstance(inputs, dict) else inputs
    if not isinstance(rows, list) or not rows:
        return "input 'x' must be a list of at least one row"
    shape, leaves = shape_of(rows), list(leaves_of(rows))
    if shape is None:
        return ragged(rows)
    if (fault := fault_of(leaves, dtype)) is not None:
        wanted = "booleans" if dtype == "bool" else f"{dtype} numbers"
        return f"input 'x' must hold {wanted}, not {fault}"
    if shape[1:] != spec.shape:
        hint = "; put a single row in a list of its own" if shape == spec.shape else ""
        return f"input 'x' must have shape {said}, not {list(shape)}{hint}"
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        if not all(limits.min <= leaf <= limits.max for leaf in leaves):
            return f"input 'x' has values outside {dtype}"
    made = np.empty(len(leaves), dtype)
    with np.errstate(over="ignore"):
        for at, leaf in enumerate(leaves):
            made[at] = np.float64(leaf) if made.dtype.kind == "f" else leaf
    if made.dtype.kind == "f" and not all(np.isfinite(one) for one in made):
        return "input 'x' has NaN, infinite or too large values"
    return made.reshape(shape)


NUMBERS = (
    st.integers(-(2**63), 2**64 - 1)
    | st.integers(-200, 300)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([65504.0, 65520.0, 3.4028235e38, 3.4028236e38, 2**53 + 1, 2**60 + 2**36 + 1])
)
LEAVES: st.SearchStrategy[Any] = (
    NUMBERS | st.booleans() | st.none() | st.text(max_size=3) | st.just({}) | st.just([])
)
NESTED = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3), max_leaves=12)


def regular(shape: Shape, leaf: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    for size in reversed(shape):
        leaf = st.lists(leaf, min_size=size, max_size=size)
    return st.lists(leaf, min_size=1, max_size=3)


@st.composite
def asked(draw: st.DrawFn) -> tuple[Task, Any]:
    """Rows that fit in most respects, or anything at all."""
    one = draw(st.sampled_from(sorted(TASKS.values(), key=lambda task: task.name)))
    (spec,) = one.inputs
    leaf = draw(st.sampled_from([NUMBERS, st.booleans(), st.integers(0, 9), LEAVES]))
    shape = spec.shape if draw(st.integers(0, 3)) else draw(st.sampled_from(SHAPES))
    rows = draw(regular(shape, leaf) if draw(st.integers(0, 3)) else NESTED)
    return one, draw(st.sampled_from([rows, rows, {"x": rows}, {"z": rows}]))


def outcome(one: Task, document: Any, *, v2: bool = False) -> np.ndarray[Any, Any] | str:
    """The tensor of a body, or the sentence that refuses it."""
    body = orjson.dumps(document)
    try:
        if v2:
            return parse_v2(body, one.name, None, TASKS, 0.0, 0).tensors[0]
        return parse_v1(body, TASKS, 0.0, 0).tensors[0]
    except InvalidInput as error:
        return error.message


def assert_same(found: np.ndarray[Any, Any] | str, wanted: np.ndarray[Any, Any] | str) -> None:
    if isinstance(found, str) or isinstance(wanted, str):
        assert found == wanted
    else:
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        assert found.tobytes() == wanted.tobytes()


@settings(deadline=None)
@given(asked(), st.booleans())
def test_rows_are_what_a_slow_reader_says(given_: tuple[Task, Any], word: bool) -> None:
    """With the word ``true`` in the body, which makes the parser suspicious, and without."""
    one, inputs = given_
    document = {"task": one.name, "inputs": inputs, "best_effort": word}
    assert_same(outcome(one, document), expected(inputs, one))


@settings(deadline=None)
@given(asked(), st.booleans())
def test_v2_data_is_what_a_slow_reader_says(given_: tuple[Task, Any], word: bool) -> None:
    """Flat or nested in any way, as long as it is regular and the number of values is right."""
    one, inputs = given_
    (spec,) = one.inputs
    data = inputs.get("x") if isinstance(inputs, dict) else inputs
    shape = [2, *spec.shape]
    entry = {"name": "x", "datatype": V2_NAMES[spec.dtype], "shape": shape, "data": data}
    found = outcome(one, {"inputs": [entry], "parameters": {"best_effort": word}}, v2=True)
    assert_same(found, expected_of_v2(data, shape, spec))


def expected_of_v2(data: Any, shape: list[int], spec: TensorSpec) -> np.ndarray[Any, Any] | str:
    """The tensor of flat or nested data, or the sentence that refuses it."""
    if not isinstance(data, list):
        return "input 'x' must be a list of numbers"
    leaves, scalars = list(leaves_of(data)), task(spec.dtype)
    if shape_of(data) is None:
        return ragged(data)
    if len(leaves) != math.prod(shape) and fault_of(leaves, spec.dtype) is None:
        needs = f"its shape {shape} needs {math.prod(shape)}"
        return f"input 'x' has {counted(len(leaves), 'value')}, {needs}"
    flat = expected(leaves, scalars)
    return flat if isinstance(flat, str) else flat.reshape(shape)


# -- what a wrong body costs --------------------------------------------------------------------

LENGTH = 200_000
"""Bytes of a body, about."""


def many(piece: str) -> str:
    return f"[{','.join([piece] * (LENGTH // (len(piece) + 1)))}]"


def text(sign: str, length: int) -> str:
    return f'"{sign * length}"'


ADVERSARIAL = {
    "a long text among numbers": "[" + "1," * (LENGTH // 4) + text("x", LENGTH // 2) + "]",
    "a long text in a row": "[[" + "1," * 63 + text("x", LENGTH) + "]]",
    "a row that is text": "[" + text("x", LENGTH) + "]",
    "a row that is text beyond ASCII": "[" + text("漢", LENGTH // 3) + "]",
    "a text as long as a row": "[" + text("漢", 64) + "]",
    "numbers as text": many('"1"'),
    "deep": "[" * 900 + "1," * (LENGTH // 2) + "1" + "]" * 900,
    "empty lists": many("[]"),
    "objects": many("{}"),
    "an object": "{" + ",".join(f'"{n}":1' for n in range(LENGTH // 9)) + "}",
    "huge integers": many("18446744073709551615"),
    "too large": many(f"[{','.join(['1e300'] * 64)}]"),
    "a ragged end": f"{many('[1]')[:-1]},[1,2]]",
    "a number among rows": f"{many('[1]')[:-1]},1]",
    "booleans": many("true"),
    "nulls": many("null"),
    "mixed": many('1,"a",null,true'),
    "too many rows": many(f"[{','.join(['1'] * 4)}]"),
    "a flat list": many("1"),
}


@pytest.mark.parametrize("kind", ADVERSARIAL)
@pytest.mark.parametrize(
    "one",
    [
        task("float32", 64),
        pytest.param(task("float32", 3, 8, 8), marks=pytest.mark.campaign),
        pytest.param(task("int64", 4), marks=pytest.mark.campaign),
        pytest.param(task("bool", 8), marks=pytest.mark.campaign),
    ],
    ids=lambda one: str(one.name),
)
def test_a_wrong_body_costs_in_proportion_to_its_size(kind: str, one: Task) -> None:
    """Beyond what reading JSON itself takes, which is a peak of 12 to 40 times the body."""
    tasks = {one.name: one}
    dtype = V2_NAMES[one.inputs[0].dtype]
    entry = f'"name":"x","datatype":"{dtype}","shape":[1,{one.inputs[0].shape}]'
    entry = entry.replace("(", "").replace(",)", "").replace(")", "")
    bodies = {
        "v1": f'{{"task":"{one.name}","inputs":{ADVERSARIAL[kind]}}}'.encode(),
        "v2": f'{{"inputs":[{{{entry},"data":{ADVERSARIAL[kind]}}}]}}'.encode(),
    }
    for dialect, body in bodies.items():
        json_bytes = _peak(partial(orjson.loads, body))
        if dialect == "v1":
            read = partial(parse_v1, body, tasks, 0.0, 0)
        else:
            read = partial(parse_v2, body, one.name, None, tasks, 0.0, 0)
        told: list[str] = []
        assert _peak(partial(_refused, read, told)) < max(20 * len(body), 1.2 * json_bytes), (
            kind,
            dialect,
        )
        assert len(told[0]) < 300


def _refused(read: Callable[[], object], told: list[str]) -> None:
    try:
        read()
    except InvalidInput as error:
        told.append(error.message)


def _peak(work: Any) -> int:
    """Most bytes that were held at once while it ran."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("value", [[[1, 2], []], "it's", 'a"b', 1.5, -7])
def test_a_short_value_is_shown_as_it_is_written(value: object) -> None:
    assert shown(value) == repr(value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "null"),
        (True, "true"),
        ([False, None, "x"], "[false, null, 'x']"),
        ({}, "an empty object"),
        ({"a": [1]}, "an object"),
        ([{"a": 1}, {}], "[{...}, {}]"),
    ],
)
def test_no_value_is_shown_as_python_writes_it(value: object, words: str) -> None:
    assert shown(value) == words


@pytest.mark.parametrize("value", ["x" * 10**7, ["y" * 10**7], [0] * 10**6])
def test_a_long_value_is_cut_before_it_is_written(value: object) -> None:
    told: list[str] = []
    assert _peak(lambda: told.append(shown(value))) < 10_000
    assert told == [f"{repr(value)[:80]}..."]
