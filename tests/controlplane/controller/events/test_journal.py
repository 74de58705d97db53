"""Events that wait for the database, and texts that it cannot store."""

import logging

import pytest

from controlplane.api.reading.event_kinds import EVENT_KINDS
from controlplane.controller.events.journal import EVENTS_HELD, TROUBLES, Journal
from variants.catalog.memory import MemoryCatalog
from variants.errors import StateUnavailable
from variants.types import Event


class Away(MemoryCatalog):
    """A catalog that is away, and while it is asked something happens."""

    journal: Journal

    def add_event(self, *events: Event) -> None:
        self.journal.tell("newest", "subject", "it came while another one was being stored")
        raise StateUnavailable("the catalog is away")


async def test_of_events_that_wait_the_oldest_go_first() -> None:
    catalog = Away()
    journal = catalog.journal = Journal(catalog)
    for number in range(EVENTS_HELD):
        journal.tell("held", str(number), "it waits")
    with pytest.raises(StateUnavailable):
        await journal.store_events()

    waiting = list(journal._events)
    assert len(waiting) == EVENTS_HELD
    assert waiting[-1].kind == "newest"
    assert waiting[0].subject == "1"


class Batches(MemoryCatalog):
    """Keeps how many events came at once, and is told of one more while it stores the first."""

    journal: Journal

    def __init__(self) -> None:
        super().__init__()
        self.counts: list[int] = []

    def add_event(self, *events: Event) -> None:
        if not self.counts:
            self.journal.tell("newest", "subject", "it came while others were being stored")
        self.counts.append(len(events))
        super().add_event(*events)


async def test_events_that_wait_are_stored_at_once() -> None:
    """Each had a transaction of its own."""
    catalog = Batches()
    journal = catalog.journal = Journal(catalog)
    for number in range(EVENTS_HELD):
        journal.tell("held", str(number), "it waits")

    await journal.store_events()
    await journal.store_events()

    assert catalog.counts == [EVENTS_HELD, 1]
    newest, before, *_ = catalog.events(EVENTS_HELD)
    assert (newest.kind, before.subject) == ("newest", str(EVENTS_HELD - 1))


async def test_what_cannot_be_stored_of_a_text_is_replaced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The event was lost, and the turn that stored it failed. A log cannot take it either."""
    catalog = MemoryCatalog()
    journal = Journal(catalog)
    journal.tell("load_failed", "digits/a on w1", "no node \x00 nor \ud800 in the graph")
    await journal.store_events()

    [event] = catalog.events(10)
    assert event.message == "no node \ufffd nor \ufffd in the graph"
    assert caplog.messages == ["load_failed digits/a on w1: no node \ufffd nor \ufffd in the graph"]


def test_what_wants_a_hand_is_a_warning_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "controlplane.controller.events.journal")
    journal = Journal(MemoryCatalog())
    journal.tell("worker_joined", "w1", "it takes up to 6,026 MiB of variants")
    journal.tell("disk_nearly_full", "state", "free some space")
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
        ("INFO", "worker_joined w1: it takes up to 6,026 MiB of variants"),
        ("WARNING", "disk_nearly_full state: free some space"),
    ]
    assert TROUBLES < EVENT_KINDS
