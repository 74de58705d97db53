"""Declared peaks, from a file: for simulating."""

from collections.abc import Collection
from math import isinf
from pathlib import Path

from controlplane.files.fields import (
    DECLARED_RATE,
    FACTOR,
    NAME_OR_ALL,
    PERIOD_S,
    SECOND,
    quoted,
)
from controlplane.files.table import BadFile, Columns, Table
from variants.catalog.protocol import MOST_PEAKS
from variants.catalog.validity.peaks import check_course
from variants.errors import InvalidInput
from variants.types import Peak, TaskName

PEAKS: Columns = {
    "task": NAME_OR_ALL,
    "factor": FACTOR,
    "qps": DECLARED_RATE,
    "start_s": SECOND,
    "end_s": SECOND,
    "every_s": PERIOD_S,
}


def read_peaks(path: Path, tasks: Collection[str]) -> tuple[Peak, ...]:
    """The peaks of a file, in its order. Times count from the beginning of the trace.

    A blank task is all of them, a blank period a peak that comes once. Each has a factor or a rate.

    Raises:
        BadFile: the first thing wrong, with its line and column.
    """
    found: list[Peak] = []
    for block in Table(path, {"peaks": PEAKS}, max_rows=MOST_PEAKS).blocks():
        columns = {name: values.tolist() for name, values in block.numbers.items()}
        for row, name in enumerate(block.names["task"]):
            if name and name not in tasks:
                raise block.wrong(row, "task", f"the catalog has no task {quoted(name)}")
            factor, qps = columns["factor"][row], columns["qps"][row]
            peak = Peak(
                id=len(found) + 1,
                task=TaskName(name) if name else None,
                factor=None if isinf(factor) else factor,
                qps=None if isinf(qps) else qps,
                start_s=columns["start_s"][row],
                end_s=columns["end_s"][row],
                every_s=columns["every_s"][row],
            )
            try:
                check_course(peak)
            except InvalidInput as error:
                raise BadFile(block.file, block.lines[row], None, error.message) from error
            found.append(peak)
    return tuple(found)
