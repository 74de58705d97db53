"""Which of the texts that a trace is played with are too long for some models of their task.

Models of a task may have tokenizers of their own, and what is too long for one is answered by the
others. A trace does not say so of its queries and the simulator lets every model answer each, so
whoever compares the two is told.
"""

import json
from collections.abc import Mapping
from typing import Any

from controlplane.cli.asking.rows import QueryRows
from controlplane.cli.gateway_client import Client
from variants.errors import InvalidInput, PayloadTooLarge
from variants.figures import counted, some_of

MOST_LOOKED_AT = 100
"""Texts of a task that are looked at, spread over all: each is read by all tokenizers."""
NAMED = 3
PATIENT_MS = 60_000.0
"""So that it is of the texts alone what cannot answer."""


def held_by_some(client: Client, task: Mapping[str, Any], rows: QueryRows) -> str:
    """A sentence on the texts that not all variants of a task hold; empty where all do.

    Args:
        task: as ``/v1/tasks`` has it.
        rows: what it is asked with.

    Raises:
        ModellessError: the gateway does not answer.
    """
    text = task.get("text")
    if text is None or not text.get("others"):
        return ""
    every = max(1, -(-len(rows) // MOST_LOOKED_AT))
    looked_at = range(0, len(rows), every)
    too_long = [found for number in looked_at if (found := _too_long(client, task, rows, number))]
    if not too_long:
        return ""
    names = some_of(sorted({name for each in too_long for name in each}), NAMED)
    of = counted(len(looked_at), "text")
    if len(looked_at) < len(rows):
        of = f"{of} that were looked at, of {len(rows):,}"
    return (
        f"Of {of}, {len(too_long):,} of {task['name']} {'is' if len(too_long) == 1 else 'are'} held"
        f" by some of its variants only, and not by {names}. The simulator has every variant answer"
        " every query, so it may find room that there is not."
    )


def _too_long(client: Client, task: Mapping[str, Any], rows: QueryRows, number: int) -> list[str]:
    """The variants that do not hold one of the texts; none where no variant does: it is refused,
    and the replay tells that."""
    document = {
        "task": task["name"],
        "slo": {"latency_ms": PATIENT_MS},
        "inputs": json.loads(rows.inputs(number)),
        "best_effort": True,
    }
    try:
        found: list[str] = client.post("/v1/explain", document).get("too_long_for", [])
    except (InvalidInput, PayloadTooLarge):
        return []
    return found
