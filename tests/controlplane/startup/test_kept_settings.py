"""What `modelless upgrade` goes by in a shell that was told less than `modelless up`."""

from pathlib import Path

import pytest

from controlplane.cli.upgrading import KEPT, keep
from controlplane.settings import Settings, load_settings

CLUSTER = {"ray_address": "auto", "listen_channel": "tcp:0.0.0.0"}


@pytest.fixture(autouse=True)
def _shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELLESS_STATE_DIR", str(tmp_path))
    for name in CLUSTER:
        # Set first, so that what is tested is taken back.
        monkeypatch.setenv(f"MODELLESS_{name.upper()}", "")
        monkeypatch.delenv(f"MODELLESS_{name.upper()}")


def started() -> dict[str, object]:
    """What a cluster was started with, by the command of `deploy/ray-cluster.yaml`."""
    told = load_settings(**CLUSTER).resolved().model_dump(mode="json")
    return {name: told[name] for name in KEPT if name in Settings.model_fields}


def test_workers_of_a_cluster_listen_as_they_did() -> None:
    assert keep(started()) == []
    assert load_settings().listen_channel == "tcp:0.0.0.0"


def test_who_says_something_else_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELLESS_LISTEN_CHANNEL", "tcp:192.0.2.7")
    assert keep(started()) == ["listen_channel"]
    assert load_settings().listen_channel == "tcp:0.0.0.0"
