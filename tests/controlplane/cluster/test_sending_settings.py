"""What of the settings travels to replicas, what does not, and when a replica refuses to start."""

import json
import os
import pickle
import pickletools
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from ray import cloudpickle

from controlplane.access.key_changes import rotate_token
from controlplane.cluster.head import HeadSecrets, is_home
from controlplane.cluster.sending_settings import describe, disagreement, receive, secrets_of, send
from controlplane.cluster.sent_settings import SentSettings
from controlplane.settings import LOCAL, SECRETS, Settings, load_settings
from variants.errors import Conflict, InvalidInput
from workers.channel.secret import ensure_secret, read_secret

pytestmark = pytest.mark.slow

PASSWORD = "swordfish-5"
SECRET = b"s" * 32
URLS = {
    "database_url": f"postgresql+psycopg://modelless:{PASSWORD}@db/modelless",
    "redis_url": f"rediss://:{PASSWORD}@redis:6379/0",
    "api_token": f"token-{PASSWORD}",
}


def settings(state_dir: Path, **given: object) -> Settings:
    return load_settings(state_dir=state_dir, **given)


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("MODELLESS_") or name == "REDIS_URL":
            monkeypatch.delenv(name)


def write_urls(state_dir: Path, **urls: str) -> None:
    lines = [f"MODELLESS_{name.upper()}={value}" for name, value in (URLS | urls).items()]
    (state_dir / "settings.env").write_text("\n".join(lines))


# -- what travels -------------------------------------------------------------------------------


def test_every_setting_reaches_a_replica_whose_node_knows_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "port": 8017,
        "workers": 2,
        "cores": 8,
        "worker_memory_mib": 6144.5,
        "listen_channel": "tcp:0.0.0.0",
        "elastic": True,
        "tick_s": 0.25,
    }
    sent = send(settings(tmp_path, **given))
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("MODELLESS_STATE_DIR", str(tmp_path / "elsewhere"))

    found, secret = receive(sent, "n1")

    assert {name: getattr(found, name) for name in given} == given
    assert found.state_dir == tmp_path
    assert secret == ensure_secret(tmp_path / "channel.secret")


def test_what_a_node_was_started_with_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = send(settings(tmp_path, port=8017))
    monkeypatch.setenv("MODELLESS_PORT", "9999")

    assert receive(sent, "n1")[0].port == 8017


def test_cores_and_memory_are_counted_once_and_not_where_the_replica_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    sent = send(settings(tmp_path, workers=2))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})

    found, _ = receive(sent, "n1")

    [kind] = found.kinds
    assert (kind.name, kind.cores) == ("cpu-3", 3)
    assert kind.memory_mib == sent.values["worker_memory_mib"] > 0


def test_no_secret_and_nothing_of_one_travels(tmp_path: Path) -> None:
    given = settings(tmp_path, url=f"http://user:{PASSWORD}@here", **URLS)
    sent = send(given)
    told = json.dumps(asdict(sent))

    assert PASSWORD not in told
    assert (tmp_path / "channel.secret").read_bytes().hex() not in told
    assert sent.digests.keys() == set(SECRETS)
    assert sent.values.keys() | {*SECRETS, *LOCAL} == Settings.model_fields.keys()


def test_commands_of_other_builds_find_what_replicas_were_told_where_it_always_was(
    tmp_path: Path,
) -> None:
    """The class was moved to another module, and the build before could not lead back."""
    sent = send(settings(tmp_path, port=8017))
    written = cloudpickle.dumps(sent)

    assert pickle.loads(written) == sent
    named = {str(word) for _, word, _ in pickletools.genops(written) if isinstance(word, str)}
    assert {word for word in named if word.startswith("controlplane")} == {
        "controlplane.cluster.sent_settings"
    }
    assert named >= {"SentSettings"}


def test_a_digest_says_nothing_without_the_channel_secret(tmp_path: Path) -> None:
    same = settings(tmp_path, database_url="sqlite:///x", api_token="sqlite:///x")
    here, there = describe(same, SECRET), describe(same, b"t" * 32)

    assert len({*here.digests.values(), *there.digests.values()}) == 6


# -- when a replica refuses ---------------------------------------------------------------------


def test_secrets_in_the_shared_settings_file_agree(tmp_path: Path) -> None:
    write_urls(tmp_path)

    found, _ = receive(send(settings(tmp_path)), "n1")

    assert {name: getattr(found, name) for name in SECRETS} == URLS


def test_secrets_in_the_environment_of_the_node_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = send(settings(tmp_path, **URLS))
    for name, value in URLS.items():
        monkeypatch.setenv(f"MODELLESS_{name.upper()}", value)

    assert receive(sent, "n1")[0].database_url == URLS["database_url"]


def test_a_node_without_the_secrets_refuses_and_names_them(tmp_path: Path) -> None:
    sent = send(settings(tmp_path, **URLS))

    with pytest.raises(Conflict) as refused:
        receive(sent, "worker-1 (192.0.2.11)")

    assert refused.value.message == (
        "node worker-1 (192.0.2.11) sees other settings than the application was started with:"
        " MODELLESS_API_TOKEN, MODELLESS_DATABASE_URL, MODELLESS_REDIS_URL; secrets are not sent"
        f" along, so write them into {tmp_path}/settings.env on the head, or into the environment"
        " of `ray start` there"
    )


def test_a_node_with_another_secret_refuses_and_says_no_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_urls(tmp_path)
    sent = send(settings(tmp_path))
    monkeypatch.setenv("MODELLESS_REDIS_URL", "redis://:other-9@redis:6379/0")

    with pytest.raises(Conflict, match=r"started with: MODELLESS_REDIS_URL; ") as refused:
        receive(sent, "n1")

    assert PASSWORD not in refused.value.message
    assert "other-9" not in refused.value.message


def test_a_token_that_was_changed_in_the_file_of_keys_is_no_other_setting(tmp_path: Path) -> None:
    """Else no process could be started again after the token was written to the settings."""
    write_urls(tmp_path)
    before = settings(tmp_path)
    sent = send(before)
    new = rotate_token(before.client_keys_path, before.api_token)
    write_urls(tmp_path, api_token=new)

    found, secret = receive(sent, "n1")

    told = secrets_of(found, secret)
    assert (found.api_token, told.token_changed) == (new, True)
    for file in (before.client_keys_path, tmp_path / "channel.secret"):
        file.rename(tmp_path / f"{file.name} of the head")
    sent = replace(sent, values={**sent.values, "ray_address": "auto"})
    receive(sent, "n2", ask=lambda: told)
    with pytest.raises(Conflict, match="started with: MODELLESS_API_TOKEN"):
        receive(sent, "n2", ask=lambda: replace(told, token_changed=False))


def test_the_head_refuses_where_another_machine_has_the_state(tmp_path: Path) -> None:
    ensure_secret(tmp_path / "channel.secret")
    sent = send(settings(tmp_path, ray_address="auto"))
    (tmp_path / "channel.secret").unlink()

    with pytest.raises(Conflict, match=r"no channel secret at .* on node n1; run `modelless up`"):
        receive(sent, "n1", on_head=True)

    ensure_secret(tmp_path / "channel.secret")
    with pytest.raises(Conflict, match=r"on node n1 is not the one that the application was"):
        receive(sent, "n1")


# -- where the state directory is not seen ------------------------------------------------------


def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SentSettings:
    """What a head has sent whose state directory this node does not see."""
    ensure_secret(tmp_path / "channel.secret")
    sent = send(settings(tmp_path, ray_address="auto", port=8017, **URLS))
    (tmp_path / "channel.secret").rename(tmp_path / "secret of the head")
    monkeypatch.setenv("MODELLESS_DATABASE_URL", "sqlite:///of-this-node")
    return sent


def test_the_head_tells_the_secrets_and_none_is_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = apart(tmp_path, monkeypatch)
    secret = read_secret(tmp_path / "secret of the head")

    found, own = receive(sent, "n1", ask=lambda: HeadSecrets(channel=secret, settings=URLS))

    assert own == secret
    assert {name: getattr(found, name) for name in SECRETS} == URLS
    assert found.port == 8017
    assert not found.secret_path.exists()
    assert not is_home(found)


def test_what_the_head_tells_has_to_be_what_the_application_was_started_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = apart(tmp_path, monkeypatch)
    secret = read_secret(tmp_path / "secret of the head")

    with pytest.raises(Conflict, match="that the head told on node n1 is not the one"):
        receive(sent, "n1", ask=lambda: HeadSecrets(channel=SECRET, settings=URLS))
    with pytest.raises(Conflict, match="started with: MODELLESS_API_TOKEN"):
        receive(
            sent,
            "n1",
            ask=lambda: HeadSecrets(channel=secret, settings=URLS | {"api_token": "x" * 16}),
        )


def test_an_application_that_was_built_anywhere_leaves_the_secret_to_the_head(
    tmp_path: Path,
) -> None:
    sent = send(settings(tmp_path, ray_address="auto", **URLS))
    assert (sent.secret, sent.digests) == ("", {})
    assert not (tmp_path / "channel.secret").exists()
    write_urls(tmp_path)

    found, secret = receive(sent, "n1", on_head=True)

    assert secret == read_secret(found.secret_path)
    assert secrets_of(found, secret) == HeadSecrets(channel=secret, settings=URLS)
    assert is_home(found)


def sent_with(state_dir: Path, **changes: object) -> SentSettings:
    sent = describe(settings(state_dir), SECRET)
    return replace(sent, values={**sent.values, **changes})


def test_settings_that_another_release_knows_are_named(tmp_path: Path) -> None:
    own = describe(settings(tmp_path), SECRET)
    fault = disagreement(replace(sent_with(tmp_path, novelty=1), release="9.9"), own)

    assert fault is not None
    assert fault.words == f"MODELLESS_NOVELTY, modelless {own.release} instead of 9.9"
    assert not fault.secret


def test_equal_settings_agree(tmp_path: Path) -> None:
    assert disagreement(sent_with(tmp_path), describe(settings(tmp_path), SECRET)) is None


def test_a_replica_that_lacks_the_token_of_an_open_gateway_says_where_and_what_to_do(
    tmp_path: Path,
) -> None:
    given = {"host": "0.0.0.0", "behind_tls_proxy": True, "allowed_hosts": "models.example"}
    sent = send(settings(tmp_path, **given, api_token=f"token-{PASSWORD}"))

    with pytest.raises(InvalidInput) as refused:
        receive(sent, "n2 (192.0.2.7)")

    assert refused.value.message == (
        "node n2 (192.0.2.7): MODELLESS_HOST=0.0.0.0 is reached from other machines: set"
        " MODELLESS_API_TOKEN to at least 16 characters, or MODELLESS_HOST to 127.0.0.1; secrets"
        f" are not sent along, so write them into {tmp_path}/settings.env on the head, or into the"
        " environment of `ray start` there"
    )
