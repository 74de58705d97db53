"""One deployment for all modules of this folder: an elastic fleet of up to two workers.

The declared peak comes first: it wants a fleet that no demand has grown before. It leaves one
worker, and how long another one takes to start is known by then.
"""

import shutil
from collections.abc import Iterator

import pytest

from tests.integration.conftest import Registered
from tests.integration.deployment import Deployment, deployed, short_directory


@pytest.fixture(scope="package")
def elastic(registered: Registered) -> Iterator[Deployment]:
    """Workers of half the machine each; one that is not needed leaves after 4 s."""
    with short_directory() as home:
        shutil.copytree(registered.halves, home / "s")
        with deployed(home / "s", workers=2, elastic=True, linger_s=4) as running:
            yield running
