"""Fixtures of commands that ask many queries."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.cli.asking.answering import Answering


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Answering]:
    answering = Answering(tmp_path)
    with answering:
        yield answering
