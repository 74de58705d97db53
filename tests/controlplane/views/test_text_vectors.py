"""What OpenAI's clients see as models: tasks that give vectors of texts, and their versions."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from controlplane.views.catalog.text_vectors import openai_models, why_no_vectors
from tests.controlplane.gateway.texts.several_tokenizers import ECHOED
from tests.controlplane.gateway.texts.test_reading import TOKENIZER, opinions
from tests.variants.catalog_builders import registration, variant
from variants.catalog.memory import MemoryCatalog
from variants.types import ModelName, Registration, Stage, Task, TaskName, TensorSpec

VECTORS = replace(ECHOED, name=TaskName("search"), metric="nearest")


def registered(task: Task, *numbers: int) -> MemoryCatalog:
    catalog = MemoryCatalog()
    for number in numbers:
        catalog.register(made(task, number))
    return catalog


def made(task: Task, number: int = 1) -> Registration:
    one = variant(number=number, of=task.name)
    made = registration(number=number, of=task.name, task=task, variants=(one,))
    return replace(made, tokenizer=None if task.text is None else TOKENIZER)


def test_a_task_comes_before_its_versions_that_answer() -> None:
    catalog = registered(VECTORS, 1, 2, 3)
    [model] = {version.model for version in catalog.snapshot().versions}
    catalog.set_stage([VECTORS.name], ModelName(model), 2, Stage.RETIRED)
    found = openai_models(catalog.snapshot())
    assert [one.id for one in found] == ["search", f"search/{model}-v1", f"search/{model}-v3"]
    first = catalog.snapshot().versions[0].created_at
    assert datetime.fromtimestamp(found[0].created, UTC) == datetime.fromisoformat(first)
    assert {(one.object, one.owned_by) for one in found} == {("model", "modelless")}


def test_lengths_are_one_model() -> None:
    outputs = (TensorSpec(name="v", dtype="float32", shape=(8,)),)
    texts = [
        replace(opinions(length), metric="nearest", labels=(), outputs=outputs) for length in (4, 8)
    ]
    catalog = MemoryCatalog()
    catalog.register(*map(made, texts))
    [model] = {version.model for version in catalog.snapshot().versions}
    assert [one.id for one in openai_models(catalog.snapshot())] == [
        "opinions",
        f"opinions/{model}-v1",
    ]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"metric": "r2"}, "task 'search' gives no vectors: it is judged by r2"),
        ({"text": None}, "task 'search' takes no texts, as it has no tokenizer"),
        (
            {"outputs": (TensorSpec(name="seen", dtype="int64", shape=(8,)),)},
            "its output 'seen' is int64",
        ),
    ],
)
def test_others_are_left_out(changes: dict[str, object], why: str) -> None:
    task = replace(VECTORS, **changes)  # type: ignore[arg-type]
    assert why in why_no_vectors(task, "search")
    assert openai_models(registered(task, 1).snapshot()) == []
