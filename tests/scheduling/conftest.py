"""A folder for a small suite."""

from pathlib import Path

import pytest

from tests.scheduling.small_suites import CONFTEST


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose tests run as these do."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    return tmp_path
