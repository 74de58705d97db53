"""The scheduler of the tests, with test processes of pytest-xdist."""

import os
import re
from pathlib import Path

import pytest

from tests.scheduling.small_suites import run
from workers.process.niceness import YIELDING

pytestmark = pytest.mark.slow


def test_what_a_process_has_left_when_a_test_ends_it_is_done_by_others(folder: Path) -> None:
    """And the test that ended it is not tried by the next process, which it would end as well."""
    for name in "abcd":
        (folder / f"test_{name}.py").write_text("def test_one(): pass\ndef test_two(): pass\n")
    (folder / "test_ends.py").write_text(
        "import os\ndef test_before(): pass\ndef test_it(): os._exit(3)\ndef test_after(): pass\n"
    )
    code, said = run(folder, count=1)
    assert code == 1, said
    assert re.search(r"\b1 failed, 10 passed\b", said), said
    assert "crashed while running 'test_ends.py::test_it'" in said


NICENESS = """
import os
def test_it():
    assert os.getpriority(os.PRIO_PROCESS, 0) in {}
"""


def test_tests_without_an_installation_yield_to_those_with_one(folder: Path) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    yielding = min(own + YIELDING, 19)
    back = (own,) if os.geteuid() == 0 else (own, yielding)  # only root may take it back
    for name, wanted in {
        "a/test_before.py": (yielding,),
        "tests/integration/test_whole.py": back,
        "tests/test_after.py": (yielding,),
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(NICENESS.format(wanted))
    code, said = run(folder, count=1)
    assert code == 0, said
    assert re.search(r"\b3 passed\b", said), said
