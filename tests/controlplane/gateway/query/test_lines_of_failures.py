"""However often a client sends what fails, the log has a few lines of it, and counters have all.

The worker is in the same process here, so its lines count as well.
"""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.gateway.http.protocol.asked import answered_with
from tests.controlplane.serving import DOUBLE, FAST, KNOWN, Served, post, query, serving

TIMES = 1_000
MOST_LINES = 4
"""One in full at the gateway and one at the worker; and within a minute of each no more than one
that counts."""


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What stands in the log at WARNING and above."""
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


async def ask_often(served: Served, body: dict[str, Any]) -> list[int]:
    """The statuses that one connection is answered with."""
    client = await served.client()
    statuses = []
    for _ in range(TIMES):
        client.send(post(body))
        statuses.append((await client.answer()).status)
    return statuses


async def test_inputs_that_overflow_a_model_fill_no_log(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    await served.worker("w1", DOUBLE)
    assert await ask_often(served, query(3e38, variant=DOUBLE)) == [500] * TIMES
    assert served.gateway.path.counters.task("letters").errors == {"INTERNAL": TIMES}
    assert 1 <= len(lines(caplog)) <= MOST_LINES


async def test_inputs_on_which_a_model_fails_fill_no_log(
    short_folder: Path, live_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    known = [replace(one, options={"fail_value": "13"}) for one in KNOWN if one.name == FAST]
    async with serving(short_folder, live_url, known=known) as served:
        await served.worker("w1", FAST)
        statuses = await ask_often(served, query(13))
        assert served.gateway.path.counters.task("letters").errors == {"INVALID_INPUT": TIMES}
    assert statuses == [400] * TIMES
    assert len(lines(caplog)) <= MOST_LINES


@pytest.mark.parametrize(
    ("body", "status"),
    [({"task": "none"}, 404), ({"task": "letters", "inputs": [["x"]]}, 400),
     (query(slo={"accuracy": 0.9999}), 422)],
)  # fmt: skip
async def test_queries_that_are_refused_are_in_no_log(
    served: Served, caplog: pytest.LogCaptureFixture, body: dict[str, Any], status: int
) -> None:
    await served.worker("w1", FAST)
    assert await ask_often(served, body) == [status] * TIMES
    assert lines(caplog) == []


async def test_what_is_no_http_is_in_no_log(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(TIMES):
        status, _, _ = await answered_with(served, b"hello\r\n\r\n")
        assert status == 400
    assert lines(caplog) == []
