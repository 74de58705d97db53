"""A gateway for commands."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.cli.gateway import Gateway


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path) as gateway:
        yield gateway
