"""Declared peaks over the control API."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from variants.catalog.memory import MemoryCatalog
from variants.catalog.protocol import MOST_PEAKS
from variants.types import Peak

LATER = {"start": "2090-01-01T08:00:00+01:00", "end": "2090-01-01T20:00:00+01:00"}


async def test_a_peak_is_declared_read_and_removed(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    reply = await api.post("/v1/peaks", json={"factor": 3, "note": "sale", **LATER})

    row = {
        "id": 1, "task": None, "factor": 3.0, "qps": None,
        "start": "2090-01-01T07:00:00Z", "end": "2090-01-01T19:00:00Z",
        "repeat": None, "note": "sale", "state": "ahead",
        "begins": "2090-01-01T07:00:00Z", "ends": "2090-01-01T19:00:00Z",
    }  # fmt: skip
    assert (reply.status_code, reply.json()) == (201, row)
    assert (await api.get("/v1/peaks")).json() == {"peaks": [row]}
    removed = await api.delete("/v1/peaks/1")
    assert (removed.status_code, removed.json()) == (200, row)
    assert (await api.get("/v1/peaks")).json() == {"peaks": []}
    assert [(e.kind, e.message) for e in catalog.events(9)] == [
        ("peak_removed", "3 times as many queries of all tasks (sale)"),
        (
            "peak_declared",
            "3 times as many queries of all tasks (sale), from 2090-01-01 07:00:00 UTC "
            "until 2090-01-01 19:00:00 UTC",
        ),
    ]


async def test_a_repeated_peak_shows_its_next_occurrence(api: httpx.AsyncClient) -> None:
    now = datetime.now(UTC)
    begun = now - timedelta(days=10, minutes=1)
    body = {"factor": 2, "repeat": "daily", "start": begun.isoformat(),
            "end": (begun + timedelta(hours=1)).isoformat()}  # fmt: skip
    row = (await api.post("/v1/peaks", json=body)).json()
    assert (row["state"], row["repeat"]) == ("now", "daily")
    begins = datetime.fromisoformat(row["begins"])
    assert abs(begins - (begun + timedelta(days=10))) < timedelta(seconds=1)


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ({"factor": 3}, 400, "body lacks 'start'"),
        (
            {"factor": 3, "start": {}, "end": []},
            400,
            "body 'start' is wrong: it must be a time in ISO 8601 with its timezone, such as "
            "2027-11-26T08:00:00Z",
        ),
        ({"factor": 3, **LATER, "start": "2090-01-01T08:00:00"}, 400, "timezone"),
        ({"factor": 3, **LATER, "start": "0001-01-01T00:00:00+14:00"}, 400, "1970 and 2100"),
        ({"factor": 3, **LATER, "end": "9999-12-31T23:00:00-14:00"}, 400, "1970 and 2100"),
        ({"factor": 3, **LATER, "end": LATER["start"]}, 400, "must end after it starts"),
        (
            {"factor": 3, "start": "2001-01-01T00:00Z", "end": "2001-01-02T00:00Z"},
            400,
            "the peak ended at 2001",
        ),
        ({"factor": 0.5, **LATER}, 400, "it must be at least 1"),
        ({"factor": 1e9, **LATER}, 400, "it must be at most 1000"),
        ({"factor": 2, "qps": 1, "task": "digits", **LATER}, 400, "one of the two"),
        ({"factor": 2, "task": "", **LATER}, 400, "'task' is empty"),
        ({**LATER}, 400, "one of the two"),
        ({"qps": 1, **LATER}, 400, "are of one task"),
        ({"factor": 2, "task": "none", **LATER}, 404, "there is no task 'none'"),
        ({"factor": 2, "repeat": "yearly", **LATER}, 400, "repeat"),
        ({"factor": 2, "more": 1, **LATER}, 400, "more"),
        ({"factor": 2, "note": "a\nb", **LATER}, 400, "printable"),
    ],
)
async def test_what_cannot_be_is_refused_with_a_sentence(
    api: httpx.AsyncClient, catalog: MemoryCatalog, body: dict[str, Any], status: int, error: str
) -> None:
    reply = await api.post("/v1/peaks", json=body)
    assert reply.status_code == status, reply.text
    assert error in reply.json()["error"]
    assert (catalog.peaks(), catalog.events(9)) == ((), ())


@pytest.mark.parametrize(("id", "status"), [("7", 404), ("0", 400), ("x", 400), ("9" * 30, 400)])
async def test_a_peak_that_is_none_is_not_removed(
    api: httpx.AsyncClient, id: str, status: int
) -> None:
    assert (await api.delete(f"/v1/peaks/{id}")).status_code == status


async def test_peaks_that_are_over_make_room(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    for number in range(MOST_PEAKS):
        ends_s = 100.0 if number < 10 else 4e9
        catalog.add_peak(Peak(start_s=ends_s - 1.0, end_s=ends_s, factor=2.0))
    for left in (MOST_PEAKS - 9, *[None] * 8):
        assert (await api.post("/v1/peaks", json={"factor": 2, **LATER})).status_code == 201
        assert left in (None, len(catalog.peaks()))
    assert (await api.post("/v1/peaks", json={"factor": 2, **LATER})).status_code == 201
    refused = await api.post("/v1/peaks", json={"factor": 2, **LATER})
    assert (refused.status_code, refused.json()["code"]) == (409, "CONFLICT")
