"""What is asked for, from a file: rates for planning, queries for simulating."""

from array import array
from collections.abc import Collection
from math import inf, isinf
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from controlplane.files.fields import (
    CEILING,
    FLOOR,
    LATENCY_MS,
    NAME,
    RATE,
    SECOND,
    WHOLE_SECOND,
    quoted,
)
from controlplane.files.table import BadFile, Block, Columns, Table, shown
from planner.approximate.rates import RateTrace
from planner.simulation.trace import Trace
from planner.types import Demand
from variants.types import TaskName

DEMAND: Columns = {
    "task": NAME,
    "qps": RATE,
    "latency_slo_ms": LATENCY_MS,
    "min_accuracy": FLOOR,
}
QUERIES: Columns = {
    "arrival_s": SECOND,
    "task": NAME,
    "latency_slo_ms": LATENCY_MS,
    "min_accuracy": FLOOR,
    "max_cost_usd_per_1k": CEILING,
}
RATES: Columns = {
    "second": WHOLE_SECOND,
    "task": NAME,
    "requests": RATE,
    "latency_slo_ms": LATENCY_MS,
    "min_accuracy": FLOOR,
}
MAX_DEMAND_ROWS = 100_000
MAX_QUERIES = 20_000_000
"""Most queries that a trace may hold, or that a trace of rates may amount to; each takes about 40
bytes."""

Numbers = NDArray[np.float64]
Indices = NDArray[np.int32]


def read_demand(
    path: Path, tasks: Collection[str], *, catalog: Path | None = None
) -> tuple[Demand, ...]:
    """The classes of a demand file, in its order; a blank floor is none.

    ``tasks`` are those of the file ``catalog``.

    Raises:
        BadFile: the first thing wrong, with its line and column.
    """
    index = _Tasks(tasks, catalog)
    found = []
    for block in Table(path, {"demand": DEMAND}, max_rows=MAX_DEMAND_ROWS).blocks():
        index.of(block)
        rows = zip(
            block.names["task"],
            block.numbers["qps"].tolist(),
            block.numbers["latency_slo_ms"].tolist(),
            block.numbers["min_accuracy"].tolist(),
            strict=True,
        )
        found += [
            Demand(
                task=TaskName(task),
                latency_ms=latency_ms,
                accuracy=None if isinf(floor) else floor,
                qps=qps,
            )
            for task, qps, latency_ms, floor in rows
        ]
    return tuple(found)


def read_trace(
    path: Path, tasks: Collection[str], *, seed: int, catalog: Path | None = None
) -> Trace:
    """The queries of a trace file, or queries drawn from the rates of a rate trace.

    Rows may come in any order: queries are sorted by arrival, those at the same time stay as they
    are. From a rate, N ~ Poisson(requests) queries arrive in a second, uniform within it; the same
    file and seed give the same queries. ``tasks`` are those of the file ``catalog``.

    Raises:
        BadFile: the first thing wrong, with its line and column; or there is no query in it.
    """
    table = Table(path, {"queries": QUERIES, "rates": RATES}, max_rows=MAX_QUERIES)
    index = _Tasks(tasks, catalog)
    if table.kind == "queries":
        arrival, task, latency, floor, ceiling = _queries(table, index)
    else:
        arrival, task, latency, floor, ceiling = _drawn(table, index, seed)
    if (arrival[1:] < arrival[:-1]).any():
        order = np.argsort(arrival, kind="stable")
        arrival, task = arrival[order], task[order]
        latency, floor, ceiling = latency[order], floor[order], ceiling[order]
    return Trace(
        tasks=index.names,
        arrival_s=_column(arrival),
        task=array("i", task.tobytes()),
        latency_ms=_column(latency),
        min_accuracy=_column(floor),
        max_cost=_column(ceiling),
    )


def read_rates(path: Path, tasks: Collection[str], *, catalog: Path | None = None) -> RateTrace:
    """The rates of a trace of rates, ascending by second; nothing is drawn from them.

    So there may be any number of requests, in at most ``MAX_QUERIES`` rows.

    Raises:
        BadFile: the first thing wrong, with its line and column; or there is no request in it.
    """
    table = Table(path, {"rates": RATES}, max_rows=MAX_QUERIES)
    index = _Tasks(tasks, catalog)
    second, task, requests, latency, floor = _rates(table, index)
    if not requests.any():
        raise BadFile(table.file, None, "requests", "there is no query in it: all rates are 0")
    order = np.argsort(second, kind="stable")
    return RateTrace(
        tasks=index.names,
        second=second[order].astype(np.int64),
        task=task[order].astype(np.int64),
        requests=requests[order],
        latency_ms=latency[order],
        min_accuracy=floor[order],
    )


class _Tasks:
    """The tasks of a catalog, as a trace refers to them."""

    def __init__(self, tasks: Collection[str], catalog: Path | None) -> None:
        self.names = tuple(TaskName(name) for name in sorted(tasks))
        self._index: dict[str, int] = {name: index for index, name in enumerate(self.names)}
        self._catalog = "the catalog" if catalog is None else shown(str(catalog))

    def of(self, block: Block) -> Indices:
        """The index of each row's task.

        Raises:
            BadFile: the catalog has no such task.
        """
        names = block.names["task"]
        try:
            return np.fromiter(map(self._index.__getitem__, names), np.int32, len(names))
        except KeyError:
            row = next(row for row, name in enumerate(names) if name not in self._index)
            known = ", ".join(self.names[:8]) + (", ..." if len(self.names) > 8 else "")
            what = f"{quoted(names[row])} is unknown; {self._catalog} has {known}"
            raise block.wrong(row, "task", what) from None


Columns5 = tuple[Numbers, Indices, Numbers, Numbers, Numbers]
"""Arrival, task, latency SLO, floor, ceiling; of rates: second, task, requests, SLO, floor."""


def _queries(table: Table, index: _Tasks) -> Columns5:
    parts = [
        (
            block.numbers["arrival_s"],
            index.of(block),
            block.numbers["latency_slo_ms"],
            block.numbers["min_accuracy"],
            block.numbers["max_cost_usd_per_1k"],
        )
        for block in table.blocks()
    ]
    arrival, task, latency, floor, ceiling = zip(*parts, strict=True)
    return (
        np.concatenate(arrival),
        np.concatenate(task),
        np.concatenate(latency),
        np.concatenate(floor),
        np.concatenate(ceiling),
    )


def _drawn(table: Table, index: _Tasks, seed: int) -> Columns5:
    """Queries from rates. Draws row by row of the file: all counts first, then all times."""
    second, task, requests, latency, floor = _rates(table, index, most=MAX_QUERIES)
    random = np.random.default_rng(seed)
    counts = random.poisson(requests)
    arrival = np.repeat(second, counts)
    if not len(arrival):
        why = (
            "all rates are 0" if not requests.any() else f"seed {seed} draws none from these rates"
        )
        raise BadFile(table.file, None, "requests", f"there is no query in it: {why}")
    arrival += random.random(len(arrival))
    return (
        arrival,
        np.repeat(task.astype(np.int32), counts),
        np.repeat(latency, counts),
        np.repeat(floor, counts),
        np.full(len(arrival), np.inf),
    )


def _rates(table: Table, index: _Tasks, most: float = inf) -> Columns5:
    """Second, task, requests, latency SLO and floor of each row, as the file has them.

    Raises:
        BadFile: something is wrong, or there are more than ``most`` requests.
    """
    parts = []
    expected = 0.0
    for block in table.blocks():
        numbers = block.numbers
        sums = expected + np.cumsum(numbers["requests"])
        expected = float(sums[-1])
        if expected > most:
            row = int(np.argmax(sums > most))
            what = (
                f"more than {most:,} requests up to here, the most that can be played one by one; "
                f"--approximate plays a sample of any number"
            )
            raise block.wrong(row, "requests", what)
        parts.append(
            (
                numbers["second"],
                index.of(block),
                numbers["requests"],
                numbers["latency_slo_ms"],
                numbers["min_accuracy"],
            )
        )
    second, task, requests, latency, floor = zip(*parts, strict=True)
    return (
        np.concatenate(second),
        np.concatenate(task),
        np.concatenate(requests),
        np.concatenate(latency),
        np.concatenate(floor),
    )


def _column(values: Numbers) -> "array[float]":
    return array("d", values.tobytes())
