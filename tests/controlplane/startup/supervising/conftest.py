"""Settings of a directory and a port of the test's own, and handlers of signals as before."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.settings import Settings, load_settings


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


@pytest.fixture
def settings(tmp_path: Path, port: int) -> Settings:
    return load_settings(state_dir=tmp_path, host="127.0.0.1", port=port, grpc_port=0)
