"""Which bodies ask for the same, by all of them but their numbers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.gateway.overload.repeated_refusals import (
    brackets_in,
    named_in_path,
    outline_named,
    outline_of,
    outline_of_headers,
    outline_of_inference,
)
from controlplane.gateway.query.skimming import skim_v1, skim_v2
from tests.controlplane.gateway.overload.refused import body, inference
from tests.planner.builders import DIGITS, NOW_MS, task


@given(st.binary(max_size=200), st.integers(0, 200), st.integers(0, 200), st.booleans())
def test_brackets_are_counted(noise: bytes, begin: int, end: int, changing: bool) -> None:
    body = noise.replace(b"a", b"[") + b"[" * (len(noise) % 20)
    begin, end = sorted((min(begin, len(body)), min(end, len(body))))
    counted = brackets_in(bytearray(body) if changing else body, begin, end)
    assert counted == body.count(b"[", begin, end)


def test_bodies_that_differ_in_their_numbers_have_one_outline() -> None:
    same = {outline_of(body([[float(n)] * 64], slo={"latency_ms": 9})) for n in range(5)}
    assert len(same) == 1
    assert None not in same


@pytest.mark.parametrize(
    "other",
    [
        body(slo={"latency_ms": 10}),
        body([[0.25] * 64] * 2, slo={"latency_ms": 9}),
        body(slo={"latency_ms": 9}, variant="a"),
        body(slo={"latency_ms": 9}, task="letters"),
    ],
)
def test_what_asks_for_something_else_has_another_outline(other: bytes) -> None:
    assert outline_of(other) != outline_of(body(slo={"latency_ms": 9}))


@pytest.mark.parametrize(
    "unusual",
    [
        b"{}",
        b"[" * 3_000,
        b"]" * 2_000 + b"[" * 2_000,
        body([{"a": 1}]),
        body([["1"] * 64]),
        b'{"inputs": [' + b"1," * 2_000 + b"1]}",  # a row for each number, if they are scalars
        b" " * 5_000 + body(),
        body() + b" " * 5_000,
    ],
)
def test_what_is_unusual_has_no_outline(unusual: bytes) -> None:
    assert outline_of(unusual) is None


@given(
    first=st.lists(st.lists(st.integers(0, 9), min_size=64, max_size=64), min_size=1, max_size=3),
    second=st.lists(st.lists(st.integers(0, 9), min_size=64, max_size=64), min_size=1, max_size=3),
    latencies=st.tuples(st.sampled_from([5, 50]), st.sampled_from([5, 50])),
    spaced=st.booleans(),
)
def test_with_one_outline_the_same_is_asked_for(
    first: list[list[int]], second: list[list[int]], latencies: tuple[int, int], spaced: bool
) -> None:
    bodies = [
        body(rows, slo={"latency_ms": ms})
        for rows, ms in zip((first, second), latencies, strict=True)
    ]
    if spaced:
        bodies[1] = bodies[1].replace(b",", b" , ")
    asked = [skim_v1(one, {DIGITS: task()}, NOW_MS, 0) for one in bodies]
    if outline_of(bodies[0]) == outline_of(bodies[1]) is not None:
        assert asked[0] == asked[1]
    if not spaced:
        same = (len(first), latencies[0]) == (len(second), latencies[1])
        assert (outline_of(bodies[0]) == outline_of(bodies[1])) == same


def test_tensors_behind_json_have_one_outline_if_json_and_length_are_the_same() -> None:
    made = b'{"inputs": []}'

    def outline(data: bytes, task: str = "a", pinned: str | None = None) -> object:
        header = str(len(made)).encode()
        found = outline_of_inference(task, pinned, data, header)
        assert outline_named(named_in_path(task, pinned), b"head" + data, header, 4) == found
        return found

    assert outline(made + b"1234") == outline(made + b"5678") is not None
    assert outline(made + b"12345678") != outline(made + b"5678")
    assert outline(made + b"1234", "b") != outline(made + b"1234")
    assert outline(made + b"1234", "a", "v") != outline(made + b"1234")
    for wrong in (None, b"", b"x", b"0", b"-1", b"4000", b"99999"):
        assert outline_of_inference("a", None, made + b"1234", wrong) is None


def test_json_of_v2_has_one_outline_if_all_around_the_numbers_is_the_same() -> None:
    def outline(body: bytes, task: str = "a") -> object:
        found = outline_of_inference(task, None, body, None)
        assert outline_named(named_in_path(task, None), b"head" + body, None, 4) == found
        return found

    numbers = "[" + "0.25, " * 400 + "1]"
    first = outline(inference(numbers))
    assert first is not None
    assert first == outline(inference("[" + "0.5," * 500 + "2]"))
    assert first == outline(inference(f"[{numbers}]"))
    for other in (
        outline(inference(numbers, shape="[2, 32]")),
        outline(inference(numbers, tail=', "parameters": {"priority": 3}')),
        outline(inference(numbers), "b"),
    ):
        assert other is not None
        assert other != first
    assert outline(inference("[0.5]")) == outline(inference("[1]")) is not None  # a short one, too
    for unusual in (
        inference("[" + '"a", ' * 400 + "1]"),
        inference(numbers, more=', "data": [1], "parameters": {"a": 1}'),
        inference(numbers).replace(b'"data"', b'"dat"'),
        inference(numbers) + b" " * 5_000,
        inference(numbers)[:-5].replace(b"}", b""),
    ):
        assert outline(unusual) is None


@settings(max_examples=25)
@given(
    numbers=st.tuples(
        st.lists(st.integers(0, 9), min_size=600, max_size=640),
        st.lists(st.integers(0, 9), min_size=600, max_size=640),
    ),
    rows=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    tails=st.tuples(
        *[st.sampled_from(["", ', "id": "7"', ', "parameters": {"latency_ms": 9}'])] * 2
    ),
    first=st.booleans(),
)
def test_with_one_outline_of_v2_the_same_is_asked_for(
    numbers: tuple[list[int], list[int]],
    rows: tuple[int, int],
    tails: tuple[str, str],
    first: bool,
) -> None:
    bodies = [
        inference(str(each), shape=f"[{count}, 64]", tail=tail)
        for each, count, tail in zip(numbers, rows, tails, strict=True)
    ]
    if first:  # the shape behind the numbers
        bodies[0] = (
            bodies[0].replace(b'"shape": [1, 64], ', b"").replace(b"}]", b', "shape": [1, 64]}]', 1)
        )
    outlines = [outline_of_inference(DIGITS, None, one, None) for one in bodies]
    asked = [skim_v2(one, DIGITS, None, {DIGITS: task()}, NOW_MS, 0) for one in bodies]
    if outlines[0] == outlines[1] is not None:
        assert asked[0] == asked[1]
    if not first:
        assert (outlines[0] == outlines[1]) == (rows[0] == rows[1] and tails[0] == tails[1])


def test_what_headers_say_has_an_outline_of_its_own() -> None:
    outlines = [
        outline_of_headers("a", None, None),
        outline_of_headers("a", None, b""),
        outline_of_headers("a", "v", None),
        outline_of_headers("b", None, b'{"latency_ms":9}'),
    ]
    assert len(set(outlines)) == 4
    assert outline_of_headers("a", None, b"x" * 5_000) is None
