"""Tokenizers of tasks, in every catalog: in memory, on SQLite, on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.places import Place, migrated_place
from tests.texts import text_input, tokenizer_json
from tests.variants.catalog_builders import registration, task
from variants.catalog.copying import all_rows, fill
from variants.catalog.sql import open_catalog
from variants.errors import InvalidInput, NotFound
from variants.types import Registration, TaskName, TensorSpec

TOKENIZER = tokenizer_json()
TEXT = text_input(TOKENIZER, mask=None, pad=3)


def texts(name: str = "opinions", **changes: Any) -> Registration:
    inputs = (TensorSpec(name="input_ids", dtype="int64", shape=(8,)),)
    given: dict[str, Any] = {
        "task": task(name, inputs=inputs, text=TEXT),
        "tokenizer": TOKENIZER,
    } | changes
    return registration(of=name, **given)


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def somewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with migrated_place(request.param, request, tmp_path) as made:
        yield made


def test_a_task_comes_with_its_tokenizer(somewhere: Place) -> None:
    catalog = somewhere.open()
    with pytest.raises(NotFound, match="there is no tokenizer"):
        catalog.tokenizer(TEXT.tokenizer)
    catalog.register(texts())
    again = somewhere.open()
    assert again.tokenizer(TEXT.tokenizer) == TOKENIZER
    (found,) = again.snapshot().tasks
    assert found.text == TEXT


def test_a_tokenizer_stays_while_a_task_names_it(somewhere: Place) -> None:
    catalog = somewhere.open()
    # Once one is there, others need not bring it.
    catalog.register(texts(), texts("views", tokenizer=None))
    catalog.register(registration())
    catalog.remove_task(TaskName("opinions"))
    assert somewhere.open().tokenizer(TEXT.tokenizer) == TOKENIZER
    catalog.remove_task(TaskName("views"))
    with pytest.raises(NotFound):
        catalog.tokenizer(TEXT.tokenizer)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tokenizer": None}, "task 'opinions' names a tokenizer that is not there"),
        ({"tokenizer": b"{}"}, "comes with a tokenizer that it does not name"),
        ({"task": task("opinions")}, "comes with a tokenizer that it does not name"),
    ],
)
def test_another_tokenizer_is_refused(
    somewhere: Place, changes: dict[str, Any], reason: str
) -> None:
    catalog = somewhere.open()
    with pytest.raises(InvalidInput, match=reason):
        catalog.register(texts(**changes))
    assert catalog.snapshot().tasks == ()


def test_a_copy_of_a_catalog_has_them(tmp_path: Path) -> None:
    first, second = (f"sqlite:///{tmp_path / name}.db" for name in ("first", "second"))
    open_catalog(first).register(texts())
    with all_rows(first) as found:
        fill(second, found.migration, found.rows)
    copied = open_catalog(second)
    assert copied.tokenizer(TEXT.tokenizer) == TOKENIZER
    assert copied.snapshot().tasks == open_catalog(first).snapshot().tasks
