"""Fixtures that tests of the command line share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.cli.gateway import Gateway
from tests.controlplane.cli.shell import Shell


@pytest.fixture
def shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Shell:
    monkeypatch.setenv("MODELLESS_STATE_DIR", str(tmp_path))
    return Shell(monkeypatch, capsys)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path) as gateway:
        yield gateway
