"""What `modelless upgrade` goes by in a shell that was told less than `modelless up`."""

from pathlib import Path

import pytest

from controlplane.access.key_changes import rotate_token
from controlplane.cli.state_settings import given_before, given_here, note_given
from controlplane.cli.upgrading import KEPT, changes, keep, refuse_other_secrets
from controlplane.cluster.sending_settings import send
from controlplane.settings import Settings, load_settings
from variants.errors import Conflict

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


def test_another_token_is_refused_unless_gateways_go_by_it_already(tmp_path: Path) -> None:
    old = load_settings(api_token="sixteen characters")
    digests = send(old).digests
    refuse_other_secrets(old, digests)
    new = rotate_token(old.client_keys_path, old.api_token)
    refuse_other_secrets(old.model_copy(update={"api_token": new}), digests)
    with pytest.raises(Conflict, match="MODELLESS_API_TOKEN is not what runs was started with"):
        refuse_other_secrets(old.model_copy(update={"api_token": "some other token"}), digests)


def test_a_setting_that_is_new_in_a_release_has_not_changed() -> None:
    """They were named with `empty -> empty`."""
    told = load_settings(linger_s=600).resolved().model_dump(mode="json")
    for name in ("traces_url", "traces_share"):
        del told[name]
    assert changes(load_settings(linger_s=600), told) == "with the same settings"
    assert changes(load_settings(linger_s=700, traces_url="http://here:4318/v1/traces"), told) == (
        "and MODELLESS_LINGER_S 600.0 -> 700.0, MODELLESS_TRACES_URL empty -> "
        "http://here:4318/v1/traces"
    )


@pytest.fixture
def settings() -> Settings:
    settings = load_settings()
    settings.run_dir.mkdir(parents=True)
    return settings


def test_what_only_the_shell_of_the_start_said_is_known_to_a_later_command(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELLESS_LINGER_S", "600")
    monkeypatch.setenv("modelless_tick_s", "2")
    monkeypatch.setenv("MODELLESS_API_TOKEN", "not for a file")
    monkeypatch.setenv("MODELLESS_PORT", "8080")
    note_given(settings, given_here())
    assert b"not for a file" not in (settings.run_dir / "given.json").read_bytes()
    assert given_before(settings) == {}  # this shell says it all itself
    for name in ("MODELLESS_LINGER_S", "modelless_tick_s", "MODELLESS_API_TOKEN", "MODELLESS_PORT"):
        monkeypatch.delenv(name)
    kept = {"MODELLESS_LINGER_S": "600", "MODELLESS_TICK_S": "2"}
    assert given_before(settings, but=KEPT) == kept
    (settings.state_dir / "settings.env").write_text("MODELLESS_TICK_S=3\n")
    assert given_before(settings, but=KEPT) == {"MODELLESS_LINGER_S": "600"}


def test_nothing_is_known_of_a_start_that_noted_nothing(settings: Settings) -> None:
    assert given_before(settings) == {}
    note_given(settings, {"MODELLESS_NO_LONGER": "1"})
    assert given_before(settings) == {}
    (settings.run_dir / "given.json").write_text("[")
    assert given_before(settings) == {}
