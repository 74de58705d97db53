"""The examples of the API reference work when they are pasted: they name what is here."""

import ast
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from tests.controlplane.builders import DIGITS, digest, variant
from tests.controlplane.dashboard.driven import Driven
from tests.controlplane.dashboard.served import Page
from variants.types import (
    LengthBucket,
    ModelVersion,
    OpenAxis,
    Registration,
    Stage,
    TaskName,
    TensorSpec,
)

pytestmark = pytest.mark.slow

EXAMPLE = {"task": "digits", "slo": {"latency_ms": 50, "accuracy": 0.97}, "inputs": [[0.0] * 64]}
QUERY = {"requestBody": {"content": {"application/json": {"schema": {}, "example": EXAMPLE}}}}
"""As the gateway describes it."""

OF_NOTHING = {"/v1/operations/{id}"}
"""What there is none of in a fresh installation."""


@pytest.fixture
def tab(page: Page, tmp_path: Path) -> Iterator[Driven]:
    page.plan()
    with Driven(tmp_path) as tab:
        yield tab


def examples(tab: Driven, page: Page) -> dict[tuple[str, str], str]:
    """The command of each request, by method and path."""
    tab.open(page.url + "docs")
    tab.wait_for("document.querySelectorAll('#groups details').length > 5")
    found = tab.value(
        "Object.entries(api.paths).flatMap(([path, methods]) => METHODS.filter(one => methods[one])"
        ".map(one => [one, path, curl(path, one, methods[one])]))"
    )
    assert tab.errors == []
    return {(method, path): command for method, path, command in found}


def body_of(command: str) -> str:
    words = shlex.split(command.replace("\\\n", " "))
    return words[words.index("-d") + 1]


def address_of(command: str) -> str:
    return next(word for word in shlex.split(command) if word.startswith("http"))


def test_examples_name_what_is_here_but_for_those_that_end_it(page: Page, tab: Driven) -> None:
    commands = examples(tab, page)
    reads = {path: command for (method, path), command in commands.items() if method == "get"}

    answered = {path: httpx.get(address_of(command)).status_code for path, command in reads.items()}

    assert len(answered) > 15
    assert {path for path, status in answered.items() if status != 200} == OF_NOTHING
    for (method, path), command in commands.items():
        ends = method == "delete" or path.endswith("/drain")
        assert bool(re.search(r"/[A-Z_]+(?=/|$)", address_of(command))) is ends, command


@pytest.mark.parametrize("path", ["/v1/peaks", "/v1/rules"])
def test_an_example_that_declares_something_is_whole(page: Page, tab: Driven, path: str) -> None:
    command = examples(tab, page)["post", path]

    reply = httpx.post(address_of(command), content=body_of(command))

    assert reply.status_code == 201, reply.text


def test_a_query_has_rows_that_fit_the_task_that_is_here(page: Page, tab: Driven) -> None:
    with_task(page, TensorSpec(name="features", dtype="float32", shape=(2, 3)))

    @page.api.post("/v1/query", openapi_extra=QUERY)
    async def query() -> None: ...

    command = examples(tab, page)["post", "/v1/query"]

    assert json.loads(body_of(command)) == {
        "task": "churn",
        "slo": {"latency_ms": 50},
        "inputs": [[[0, 0, 0], [0, 0, 0]]],
    }


def with_task(page: Page, *inputs: TensorSpec) -> None:
    """A catalog of one task with these inputs, whose only variant is right in 90 %."""
    page.catalog = page.context.catalog = type(page.catalog)()
    other = replace(DIGITS, name=TaskName("churn"), inputs=inputs)
    one = replace(variant("m", accuracy=0.9), task=other.name)
    version = ModelVersion(
        task=other.name, model=one.model, version=1, stage=Stage.LIVE, source=digest("m"),
        created_at="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    page.catalog.register(Registration(task=other, version=version, variants=(one,), profiles=()))


def told(page: Page, tab: Driven) -> str:
    """The command by which the page says that its task is asked."""
    tab.open(page.url)
    tab.wait_for("!$('ask').hidden")
    assert tab.errors == []
    command: str = tab.value("$('ask-how').querySelector('pre').textContent")
    return command


def test_a_task_that_nobody_has_asked_says_how(page: Page, tab: Driven) -> None:
    page.live.slo["tasks"] = []

    command = told(page, tab)

    assert tab.value("$('ask').open")
    assert address_of(command) == page.url + "v1/query"
    body = json.loads(body_of(command))
    assert (body["task"], body["slo"]) == ("digits", {"latency_ms": 1_000, "accuracy": 0.96})
    assert [len(row) for row in body["inputs"]] == [64]


def test_how_a_task_is_asked_is_folded_once_it_was(page: Page, tab: Driven) -> None:
    told(page, tab)

    assert not tab.value("$('ask').open")


def test_rows_fit_the_inputs_and_names_of_inputs_end_no_text(page: Page, tab: Driven) -> None:
    spec = TensorSpec(name="it's", dtype="float32", shape=(2, 3))
    with_task(page, spec, replace(spec, name="age", shape=()))

    body = json.loads(body_of(told(page, tab)))

    assert body["inputs"] == {"it's": [[[0, 0, 0], [0, 0, 0]]], "age": [0]}


def test_where_rows_differ_in_length_they_have_the_shortest(page: Page, tab: Driven) -> None:
    page.catalog = page.context.catalog = type(page.catalog)()
    one = variant("m", accuracy=0.9)
    for length in (12, 4):
        bucket = LengthBucket(
            of=TaskName("lines"), length=length, axes=(OpenAxis(input="image", axis=1),)
        )
        task = replace(
            DIGITS, name=TaskName(f"lines.{length}"), bucket=bucket,
            inputs=(TensorSpec(name="image", dtype="float32", shape=(2, length)),),
        )  # fmt: skip
        version = ModelVersion(
            task=task.name, model=one.model, version=1, stage=Stage.LIVE, source=digest("m"),
            created_at="2026-01-01T00:00:00+00:00",
        )  # fmt: skip
        page.catalog.register(
            Registration(
                task=task, version=version, variants=(replace(one, task=task.name),), profiles=()
            )
        )
    tab.open(page.url)
    lines = httpx.get(page.url + "v1/tasks/lines").text

    body = json.loads(body_of(tab.value(f"askingCommand({lines}, '', false)")))

    # What the best variant of another length has is no floor for this one.
    assert body == {"task": "lines", "slo": {"latency_ms": 1_000}, "inputs": [[[0] * 4] * 2]}


def test_rows_too_long_to_be_written_out_are_asked_from_python(page: Page, tab: Driven) -> None:
    with_task(page, TensorSpec(name="image", dtype="float32", shape=(3, 224, 224)))

    program = told(page, tab)

    assert [ast.unparse(node) for node in ast.walk(ast.parse(program)) if is_query(node)] == [
        "client.query('churn', np.zeros((1, 3, 224, 224), 'float32'), latency_ms=1000, "
        "accuracy=0.88)"
    ]


def is_query(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "client.query"
