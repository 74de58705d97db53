"""Planning files of a task."""

from pathlib import Path

import pytest

from tests.controlplane.cli.planning.simulated import steady
from tests.controlplane.files.builders import write_all


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, Path]:
    """A minute of 20 queries per second."""
    return write_all(tmp_path, trace=steady(60))
