"""The scheduler of the tests, with test processes of pytest-xdist."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def test_what_a_process_has_left_when_a_test_ends_it_is_done_by_others(tmp_path: Path) -> None:
    """And the test that ended it is not tried by the next process, which it would end as well."""
    (tmp_path / "conftest.py").write_text(
        "from tests.scheduling.order import Scheduling\n"
        "def pytest_xdist_make_scheduler(config, log):\n"
        "    config.option.loadscopereorder = False\n"
        "    return Scheduling(config, log)\n"
    )
    for name in "abcd":
        (tmp_path / f"test_{name}.py").write_text("def test_one(): pass\ndef test_two(): pass\n")
    (tmp_path / "test_ends.py").write_text(
        "import os\ndef test_before(): pass\ndef test_it(): os._exit(3)\ndef test_after(): pass\n"
    )
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-n", "1", "-p", "no:cacheprovider", "-c", os.devnull,
            "--rootdir", str(tmp_path), str(tmp_path),
        ],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE,
        text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout
    assert re.search(r"\b1 failed, 10 passed\b", done.stdout), done.stdout
    assert "crashed while running 'test_ends.py::test_it'" in done.stdout
