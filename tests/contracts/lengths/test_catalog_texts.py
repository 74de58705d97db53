"""Tokenizers of tasks, in every catalog: in memory, on SQLite, on PostgreSQL."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.places import Place
from tests.texts import other_tokenizer_json, text_input, tokenizer_json
from tests.variants.catalog_builders import registration, task
from variants.catalog.copying import all_rows, fill
from variants.catalog.sql import open_catalog
from variants.errors import Conflict, InvalidInput, NotFound
from variants.texts.inputs import digest_of_text
from variants.types import (
    ModelName,
    Registration,
    Stage,
    TaskName,
    TensorSpec,
    TextInput,
    VariantName,
)

TOKENIZER = tokenizer_json()
TEXT = text_input(TOKENIZER, mask=None, pad=3)


def texts(name: str = "opinions", **changes: Any) -> Registration:
    inputs = (TensorSpec(name="input_ids", dtype="int64", shape=(8,)),)
    given: dict[str, Any] = {
        "task": task(name, inputs=inputs, text=TEXT),
        "tokenizer": TOKENIZER,
    } | changes
    return registration(of=name, **given)


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


VIEW = ModelName("view")
OWN_TOKENIZER = other_tokenizer_json()
OWN = replace(TEXT, tokenizer=digest_of_text(OWN_TOKENIZER), pad=1)


def other(text: TextInput = OWN, **changes: Any) -> Registration:
    """Of another model of ``opinions``, with a tokenizer of its own."""
    made = texts(**({"tokenizer": OWN_TOKENIZER} | changes))
    variants = tuple(
        replace(one, model=VIEW, name=VariantName(f"view-v1-{number}"))
        for number, one in enumerate(made.variants)
    )
    profiles = tuple(
        replace(one, variant=variants[[v.name for v in made.variants].index(one.variant)].name)
        for one in made.profiles
    )
    version = replace(made.version, model=VIEW, text=text)
    return replace(made, version=version, variants=variants, profiles=profiles)


def test_a_version_may_have_a_tokenizer_of_its_own(somewhere: Place) -> None:
    catalog = somewhere.open()
    catalog.register(texts())
    with pytest.raises(InvalidInput, match="names a tokenizer that is not there"):
        catalog.register(other(tokenizer=None))
    catalog.register(other())
    again = somewhere.open()
    assert {one.model: one.text for one in again.snapshot().versions}[VIEW] == OWN
    assert again.tokenizer(OWN.tokenizer) == OWN_TOKENIZER
    # It goes with the version.
    catalog.set_stage([TaskName("opinions")], VIEW, 1, Stage.RETIRED)
    catalog.remove_version([TaskName("opinions")], VIEW, 1)
    assert again.tokenizer(TEXT.tokenizer) == TOKENIZER
    with pytest.raises(NotFound):
        again.tokenizer(OWN.tokenizer)


def test_a_version_may_take_types_beside_its_numbers(somewhere: Place) -> None:
    catalog = somewhere.open()
    catalog.register(texts())
    typed = replace(TEXT, packed_types=True)
    catalog.register(other(typed, tokenizer=None))
    assert {one.model: one.text for one in somewhere.open().snapshot().versions}[VIEW] == typed


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (TEXT, "names the tokenizer of its task as one of its own"),
        (replace(OWN, mask="mask"), "has its texts in other inputs than its task"),
        (replace(OWN, pad=-1), "must be the number of a token"),
    ],
)
def test_a_version_takes_what_its_task_does(somewhere: Place, text: TextInput, reason: str) -> None:
    catalog = somewhere.open()
    catalog.register(texts())
    with pytest.raises(InvalidInput, match=reason):
        catalog.register(other(text))
    assert len(catalog.snapshot().versions) == 1


def test_a_task_of_numbers_has_no_such_version(somewhere: Place) -> None:
    catalog = somewhere.open()
    plain = texts(task=replace(texts().task, text=None), tokenizer=None)
    catalog.register(plain)
    odd = replace(other(), task=plain.task)
    with pytest.raises(InvalidInput, match="has a tokenizer, and its task takes no texts"):
        catalog.register(odd)
    with pytest.raises(Conflict, match="exists with another way from texts to rows"):
        catalog.register(replace(other(), version=replace(other().version, text=None)))


def test_a_task_of_numbers_may_get_a_tokenizer(somewhere: Place) -> None:
    catalog = somewhere.open()
    plain = texts(task=replace(texts().task, text=None), tokenizer=None)
    catalog.register(plain)
    name, revision = plain.task.name, catalog.revision()
    for given in (None, b"{}"):
        with pytest.raises(InvalidInput, match="a tokenizer that"):
            catalog.change_tasks([name], lambda task: replace(task, text=TEXT), given)
    assert catalog.revision() == revision
    [(before, after)] = catalog.change_tasks(
        [name], lambda task: replace(task, text=TEXT), TOKENIZER
    )
    assert (before.text, after.text) == (None, TEXT)
    again = somewhere.open()
    assert again.snapshot().tasks == (after,)
    assert again.tokenizer(TEXT.tokenizer) == TOKENIZER
    # What else is changed leaves it alone.
    catalog.change_tasks([name], lambda task: replace(task, labels=()))
    assert again.tokenizer(TEXT.tokenizer) == TOKENIZER


def test_a_copy_of_a_catalog_has_them(tmp_path: Path) -> None:
    first, second = (f"sqlite:///{tmp_path / name}.db" for name in ("first", "second"))
    open_catalog(first).register(texts())
    open_catalog(first).register(other())
    with all_rows(first) as found:
        fill(second, found.migration, found.rows)
    copied = open_catalog(second)
    assert copied.tokenizer(TEXT.tokenizer) == TOKENIZER
    assert copied.tokenizer(OWN.tokenizer) == OWN_TOKENIZER
    assert copied.snapshot().tasks == open_catalog(first).snapshot().tasks
    assert copied.snapshot().versions == open_catalog(first).snapshot().versions
