"""Files of declared peaks: what they mean, and what is wrong with them."""

from pathlib import Path

import pytest

from controlplane.files.peaks import read_peaks
from controlplane.files.table import BadFile
from tests.controlplane.files.builders import PEAKS, with_line, write_all
from variants.types import Peak, TaskName

TASKS = {"digits"}


def test_peaks_are_read_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = write_all(tmp_path, peaks=PEAKS)["peaks"]
    assert read_peaks(path, TASKS) == (
        Peak(id=1, start_s=60.0, end_s=120.0, factor=3.0),
        Peak(id=2, task=TaskName("digits"), qps=50.0, start_s=600.0, end_s=660.0, every_s=3_600.0),
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("pictures,3,,60,120,", "line 3, column task: the catalog has no task 'pictures'"),
        (",3,,120,60,", "line 3: a peak must end after it starts"),
        (",3,5,60,120,", "line 3: a peak needs a factor or the queries per second"),
        (",,,60,120,", "line 3: a peak needs a factor or the queries per second"),
        (",0.5,,60,120,", "line 3, column factor: '0.5' is not at least 1"),
        (",1e9,,60,120,", "line 3, column factor: '1e9' is above 1,000"),
        (",,5,60,120,", "line 3: queries per second are of one task"),
        (",3,,60,120,5", "line 3: a peak may come again after a minute at least"),
        (",3,,60,nan,", "line 3, column end_s: 'nan' is not a finite number"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, line: str, reason: str) -> None:
    path = write_all(tmp_path, peaks=with_line(PEAKS, 3, line))["peaks"]
    with pytest.raises(BadFile, match=reason):
        read_peaks(path, TASKS)


def test_there_is_a_most_of_them(tmp_path: Path) -> None:
    head, row = PEAKS.splitlines()[:2]
    path = write_all(tmp_path, peaks="\n".join([head, *[row] * 1_001]))["peaks"]
    with pytest.raises(BadFile, match="line 1002: more than 1,000 rows"):
        read_peaks(path, TASKS)
