"""Notes of the control loop: how often they are written, and what is due again."""

import json
from typing import Any

import pytest

from controlplane.controller.kept_notes import KeptNotes
from variants.catalog.memory import MemoryCatalog
from variants.errors import StateUnavailable

EVERY_S = 10.0


class Shelf(MemoryCatalog):
    """A catalog that counts what is written, and is away or does something else meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[Any] = []
        self.meanwhile: list[Any] = []
        self.away = False

    def put_learned(self, name: str, at_s: float, body: bytes, *, epoch: int) -> None:
        for each in self.meanwhile:
            each()
        if self.away:
            raise StateUnavailable("the database does not answer")
        self.written.append(json.loads(body))


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def clock() -> list[float]:
    return [100.0]


@pytest.fixture
def notes(shelf: Shelf, clock: list[float]) -> KeptNotes:
    return KeptNotes(shelf, "notes", lambda: clock[0], EVERY_S)


async def test_what_has_changed_is_written_when_it_is_due_and_at_once_where_it_has_to_be(
    notes: KeptNotes, shelf: Shelf, clock: list[float]
) -> None:
    clock[0] += EVERY_S
    await notes.keep(lambda: 1, 1)
    assert shelf.written == []  # nothing has changed
    notes.changed()
    await notes.keep(lambda: 2, 1)
    notes.changed()
    await notes.keep(lambda: 3, 1)
    assert shelf.written == [2]  # the next is not due yet
    notes.changed(at_once=True)
    await notes.keep(lambda: 4, 1)
    assert shelf.written == [2, 4]


async def test_what_changes_while_it_is_written_is_due_again(
    notes: KeptNotes, shelf: Shelf, clock: list[float]
) -> None:
    notes.changed(at_once=True)
    shelf.meanwhile.append(notes.changed)
    await notes.keep(lambda: 1, 1)
    shelf.meanwhile.clear()
    clock[0] += EVERY_S
    await notes.keep(lambda: 2, 1)
    assert shelf.written == [1, 2]


async def test_what_could_not_be_written_is_due_on(notes: KeptNotes, shelf: Shelf) -> None:
    notes.changed(at_once=True)
    shelf.away = True
    with pytest.raises(StateUnavailable):
        await notes.keep(lambda: 1, 1)
    shelf.away = False
    await notes.keep(lambda: 2, 1)
    assert shelf.written == [2]
