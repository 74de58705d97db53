"""Asks at a rate that a file says, and keeps a ledger with an entry for each query.

``python -m tests.integration.clusters.asking PORT FOLDER``: ``FOLDER/rate`` holds the queries per
second, and no number ends it. ``FOLDER/ledger.json`` has what became of each query, in the order in
which they were sent.
"""

import asyncio
import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import httpx

ANSWER_S = 60.0
QUERY: dict[str, Any] = {
    "task": "digits",
    "inputs": [[0.0] * 64],
    "slo": {"latency_ms": 5_000.0},
}


async def main(port: int, folder: Path) -> None:
    ledger: list[dict[str, Any]] = []
    running: set[asyncio.Task[None]] = set()
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=ANSWER_S, limits=limits, trust_env=False) as client:
        while (rate := _rate(folder)) is not None:
            entry: dict[str, Any] = {"sent_s": time.time()}
            ledger.append(entry)
            task = asyncio.create_task(_ask(client, port, entry))
            running.add(task)
            task.add_done_callback(running.discard)
            if len(ledger) % 20 == 0:
                _keep(folder, ledger)
            await asyncio.sleep(1 / rate)
        await asyncio.gather(*running)
    _keep(folder, ledger)


async def _ask(client: httpx.AsyncClient, port: int, entry: dict[str, Any]) -> None:
    try:
        reply = await client.post(f"http://127.0.0.1:{port}/v1/query", json=QUERY)
        body = reply.json()
        entry["outcome"] = "200" if reply.status_code == 200 else str(body["code"])
        entry["worker"] = body.get("worker", "")
    except (httpx.HTTPError, ValueError, KeyError) as error:
        entry["outcome"] = f"broken: {error!r}"
    entry["took_s"] = time.time() - entry["sent_s"]


def _rate(folder: Path) -> float | None:
    with contextlib.suppress(ValueError):
        return float((folder / "rate").read_text())
    return None


def _keep(folder: Path, ledger: list[dict[str, Any]]) -> None:
    whole = folder / "ledger.json.new"
    whole.write_text(json.dumps(ledger))
    whole.rename(folder / "ledger.json")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))
