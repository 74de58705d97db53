"""One deployment for all modules of this folder: two workers of half the cores each."""

import shutil
from collections.abc import Iterator

import pytest

from tests.integration.conftest import Registered
from tests.integration.deployment import Deployment, deployed, short_directory

PATIENCE_S = 600.0
"""With a machine that does other things as well."""


@pytest.fixture(scope="package")
def two(registered: Registered) -> Iterator[Deployment]:
    """Both with all variants; a profile that was missing was measured while they served."""
    with short_directory() as home:
        shutil.copytree(registered.halves, home / "s")
        with deployed(home / "s", workers=2, gateways=1, start_s=PATIENCE_S) as running:
            running.until(lambda: complete(running) == 2, "two workers", PATIENCE_S)
            yield running


def complete(deployment: Deployment) -> int:
    """Workers that hold all variants."""
    every = {variant["name"] for variant in deployment.variants()}
    return sum(deployment.ready(worker) == every for worker in deployment.workers())


def serving(deployment: Deployment) -> int:
    """Workers that hold something."""
    return sum(bool(deployment.ready(worker)) for worker in deployment.workers())
