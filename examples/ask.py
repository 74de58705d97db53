"""Ask a running modelless for a task: from a script, and from an event loop.

Start it in another terminal with ``make up``, which serves the task ``digits`` (8 x 8 pixels from
0 to 16, row by row), and run::

    .venv/bin/python examples/ask.py

``--url`` or ``MODELLESS_URL`` names a gateway elsewhere; ``MODELLESS_API_TOKEN`` holds its token,
where it wants one.
"""

import argparse
import asyncio
import sys

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

import modelless


def ask(url: str | None, rows: NDArray[np.float32]) -> None:
    """One query with rows of shape ``(rows, 64)``, and one that is answered with its reason."""
    with modelless.Client(url) as client:
        reply = client.query("digits", rows, latency_ms=2_000, accuracy=0.97)
        print(f"{' '.join(reply.labels)}: {reply.variant}, measured accuracy {reply.accuracy:.3f}")
        print(f"  {reply.run_ms:.2f} ms in a batch of {reply.batch_size}, in time: {reply.slo_met}")
        try:
            client.query("digits", rows, latency_ms=0.001, accuracy=0.97)
        except modelless.SloInfeasible as error:
            print(f"{error.code}: {error.message}")
            closest = error.alternatives[0]
            print(f"  closest is {closest.variant} with accuracy {closest.accuracy:.3f}")


async def ask_many(url: str | None, rows: NDArray[np.float32]) -> None:
    """One query for each row of ``(rows, 64)``, all at once; workers batch them again."""
    async with modelless.AsyncClient(url) as client:

        async def label(row: NDArray[np.float32]) -> str:
            while True:
                try:
                    reply = await client.query("digits", [row], latency_ms=2_000)
                    return str(reply.labels[0])
                except (modelless.Overloaded, modelless.Cold) as error:
                    await asyncio.sleep(error.retry_after_s or 0.1)

        labels = await asyncio.gather(*(label(row) for row in rows))
    print(f"{len(labels)} queries at once: {' '.join(labels)}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--url")
    url = options.parse_args().url
    rows = load_digits().data.astype(np.float32)
    try:
        ask(url, rows[:5])
        asyncio.run(ask_many(url, rows[:20]))
    except modelless.ModellessError as error:  # such as Unreachable, where none runs
        sys.exit(f"{error.code}: {error.message}")


if __name__ == "__main__":
    main()
