"""One deployment for all modules of this folder: one worker, embedded Valkey, SQLite.

A module may kill parts of it, and waits until they are back. ``test_examples.py``, which adds a
task, runs last.
"""

import shutil
from collections.abc import Iterator

import pytest

from tests.integration.conftest import Registered
from tests.integration.deployment import Deployment, deployed, short_directory


@pytest.fixture(scope="package")
def digits(registered: Registered) -> Iterator[Deployment]:
    """One worker with all cores."""
    with short_directory() as home:
        shutil.copytree(registered.home, home / "s")
        with deployed(home / "s", arguments=["--example", "digits"], gateways=1) as running:
            yield running
