"""Declared peaks and what was learned, in every catalog: in memory, on SQLite, on PostgreSQL."""

from dataclasses import replace
from typing import Any

import pytest

from tests.contracts.places import MEMORY_IN_EACH_RUN, Place
from variants.catalog.protocol import MOST_LEARNED_BYTES, MOST_PEAKS, Catalog
from variants.errors import Conflict, InvalidInput, NotFound, StaleEpoch
from variants.types import Peak, TaskName

SALE = Peak(start_s=1_000.0, end_s=2_000.0, factor=3.0, note="Räumungsverkauf")
LESSONS = Peak(
    start_s=500.5, end_s=600.25, task=TaskName("digits"), qps=12.5, every_s=86_400.0, note=""
)


def test_peaks_are_read_back_by_start_under_new_ids(somewhere: Place) -> None:
    catalog = somewhere.open()
    assert catalog.peaks() == ()
    sale, lessons = catalog.add_peak(SALE), catalog.add_peak(replace(LESSONS, id=77))
    assert (sale, lessons) == (replace(SALE, id=1), replace(LESSONS, id=2))
    assert somewhere.open().peaks() == (lessons, sale)
    assert catalog.revision() == 0


def test_a_peak_is_taken_back_and_its_id_is_not_given_again(catalog: Catalog) -> None:
    catalog.add_peak(SALE)
    catalog.remove_peak(1)
    assert catalog.peaks() == ()
    with pytest.raises(NotFound, match="no declared peak 1"):
        catalog.remove_peak(1)
    assert catalog.add_peak(SALE).id == 2


@MEMORY_IN_EACH_RUN
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"end_s": 1_000.0}, "must end after it starts"),
        ({"end_s": float("nan")}, "not between 1970 and 2100"),
        ({"start_s": -1.0}, "not between 1970 and 2100"),
        ({"end_s": 1.8e12}, "not between 1970 and 2100"),
        ({"end_s": 40_000_000.0}, "366 days at most"),
        ({"every_s": 999.0}, "must end before it comes again"),
        ({"every_s": 1.0}, "a minute at least"),
        ({"every_s": float("nan")}, "a minute at least"),
        ({"factor": None}, "one of the two"),
        ({"qps": 1.0}, "one of the two"),
        ({"factor": 0.5}, "from 1 to 1,000"),
        ({"factor": float("inf")}, "from 1 to 1,000"),
        ({"factor": None, "qps": 5.0}, "are of one task"),
        ({"factor": None, "qps": 0.0, "task": TaskName("a")}, "above 0"),
        ({"factor": None, "qps": 1e300, "task": TaskName("a")}, "above 0"),
        ({"task": TaskName("No Task")}, "cannot be the name of a task"),
        ({"note": "a\nb"}, "printable"),
        ({"note": "a" * 201}, "200"),
    ],
)
def test_a_peak_that_cannot_be_is_refused(
    catalog: Catalog, change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        catalog.add_peak(replace(SALE, **change))
    assert catalog.peaks() == ()


def test_there_is_a_most_of_peaks(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_PEAKS == 1_000
    monkeypatch.setattr("variants.catalog.validity.peaks.MOST_PEAKS", 2)
    for _ in range(2):
        catalog.add_peak(SALE)
    with pytest.raises(Conflict, match="2 declared peaks, the most possible"):
        catalog.add_peak(SALE)
    assert len(catalog.peaks()) == 2


def test_what_was_learned_is_kept_in_place_of_the_older(somewhere: Place) -> None:
    catalog = somewhere.open()
    epoch = catalog.acquire_leadership("one")
    assert catalog.learned("demand") is None
    catalog.put_learned("demand", 5.5, b"\x00old", epoch=epoch)
    catalog.put_learned("demand", 7.25, b"\xffnew", epoch=epoch)
    assert somewhere.open().learned("demand") == (7.25, b"\xffnew")
    assert catalog.learned("other") is None


def test_an_older_leader_teaches_nothing(catalog: Catalog) -> None:
    with pytest.raises(StaleEpoch):
        catalog.put_learned("demand", 1.0, b"", epoch=0)
    old = catalog.acquire_leadership("one")
    new = catalog.acquire_leadership("two")
    catalog.put_learned("demand", 1.0, b"new", epoch=new)
    with pytest.raises(StaleEpoch):
        catalog.put_learned("demand", 2.0, b"old", epoch=old)
    assert catalog.learned("demand") == (1.0, b"new")


def test_too_much_is_not_learned(catalog: Catalog) -> None:
    epoch = catalog.acquire_leadership("one")
    with pytest.raises(InvalidInput, match="64 MiB are possible"):
        catalog.put_learned("demand", 1.0, bytes(MOST_LEARNED_BYTES + 1), epoch=epoch)
    with pytest.raises(InvalidInput, match="cannot be the name"):
        catalog.put_learned("De mand", 1.0, b"", epoch=epoch)
