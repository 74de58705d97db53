"""Settings as they are sent to the replicas of an application, wherever they run.

A replica sees the environment of the machine that it runs on, and not that of the process which
started the application. So all settings travel with the application, except secrets: a replica on a
machine that sees the state directory has them from ``settings.env`` there, or from the environment
that Ray was started with; on another machine the head tells them (``controlplane.cluster.head``).
What travels instead is a digest of each, keyed with the channel secret: a replica that sees another
value refuses to start, and names the setting.
"""

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from controlplane.access.client_keys import takes_token
from controlplane.cluster.head import HeadSecrets, ask_secrets
from controlplane.cluster.sent_settings import SentSettings
from controlplane.settings import LOCAL, SECRET_FILE, SECRETS, Settings, load_settings
from variants.errors import Conflict, InvalidInput
from workers.channel.secret import (
    checked_secret,
    digest,
    ensure_secret,
    own_digest,
    read_shared_secret,
    secret_here,
)

TOKEN_SETTING = "api_token"  # noqa: S105 - a name


def send(settings: Settings) -> SentSettings:
    """What to tell the replicas of an application; makes the channel secret if there is none.

    On a cluster it makes none: Ray may build applications on any machine, and the secret belongs
    to the head.

    Raises:
        Forbidden: the channel secret cannot be read, or others can read it.
    """
    if settings.ray_address:
        return describe(settings, secret_here(settings.secret_path, "", "this one"))
    return describe(settings, ensure_secret(settings.secret_path))


def describe(settings: Settings, secret: bytes | None) -> SentSettings:
    """These settings, with digests in place of what is secret."""
    values = settings.resolved().model_dump(mode="json", exclude={*SECRETS, *LOCAL})
    digests = (
        {}
        if secret is None
        else {name: digest(secret, name, getattr(settings, name)) for name in SECRETS}
    )
    return SentSettings(
        release=version("modelless"),
        values=values,
        secret="" if secret is None else own_digest(secret),
        digests=digests,
    )


def receive(
    sent: SentSettings,
    node: str,
    *,
    on_head: bool = False,
    ask: Callable[[], HeadSecrets] = ask_secrets,
) -> tuple[Settings, bytes]:
    """The settings of a replica on this node, and the channel secret.

    Args:
        on_head: the head has all secrets itself, and makes that of the channel if nobody has.
        ask: what tells the secrets where the state directory is not seen.

    Raises:
        Conflict: this node sees other settings, another secret or another modelless than the
            process that started the application; the sentence says which.
        InvalidInput: a setting is wrong here.
        ClusterUnavailable: the head does not tell the secrets.
    """
    state_dir = sent.values.get("state_dir", "the state directory")
    path = Path(str(state_dir)) / SECRET_FILE
    told = None
    if sent.values.get("ray_address") and not on_head and not path.exists():
        told = ask()
    try:
        settings = load_settings(**{**sent.values, **(told.settings if told else {})})
    except InvalidInput as error:
        # What was sent is right where it comes from: it is a secret that is wrong or missing here.
        raise InvalidInput(f"node {node}: {error.message}; {_remedy(state_dir)}") from error
    if told is not None:
        secret = checked_secret(told.channel, sent.secret, "that the head told", node)
    elif sent.secret:
        secret = read_shared_secret(path, sent.secret, node)
    else:
        secret = ensure_secret(path)
    own = describe(settings, secret if sent.secret else None)
    # A head of before says nothing of it.
    changed = told is not None and getattr(told, "token_changed", False)
    if changed or token_was_changed(settings):
        own = replace(own, digests={**own.digests, **_of_token(sent)})
    if fault := disagreement(sent, own):
        remedy = (
            _remedy(settings.state_dir)
            if fault.secret
            else "install the same modelless on every node"
        )
        raise Conflict(
            f"node {node} sees other settings than the application was started with:"
            f" {fault.words}; {remedy}"
        )
    return settings, secret


def token_was_changed(settings: Settings) -> bool:
    """Whether the operator's token is another one than before for gateways that run as well: it is
    one of those in the file of keys, by which they go."""
    return takes_token(settings.client_keys_path, settings.api_token)


def _of_token(sent: SentSettings) -> dict[str, str]:
    return {name: digest for name, digest in sent.digests.items() if name == TOKEN_SETTING}


def secrets_of(settings: Settings, secret: bytes) -> HeadSecrets:
    """What the head tells the replicas of machines that do not see its state directory."""
    return HeadSecrets(
        channel=secret,
        settings={name: getattr(settings, name) for name in SECRETS},
        token_changed=token_was_changed(settings),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """In what a replica and the process that started its application differ."""

    words: str
    """Names of settings; never a value."""
    secret: bool
    """Whether secrets differ, and nothing else."""


def disagreement(sent: SentSettings, own: SentSettings) -> Disagreement | None:
    """In what they differ; None when they agree."""
    secrets = _differing(sent.digests, own.digests, _same_digest)
    others = _differing(sent.values, own.values, lambda one, other: one == other)
    words = [f"MODELLESS_{name.upper()}" for name in (*secrets, *others)]
    if sent.release != own.release:
        words.append(f"modelless {own.release} instead of {sent.release}")
    if not words:
        return None
    return Disagreement(words=", ".join(words), secret=len(words) == len(secrets))


def _remedy(state_dir: object) -> str:
    return (
        f"secrets are not sent along, so write them into {state_dir}/settings.env on the head, or"
        " into the environment of `ray start` there"
    )


def _same_digest(one: Any, other: Any) -> bool:
    return hmac.compare_digest(one or "", other or "")


def _differing(one: Mapping[str, Any], other: Mapping[str, Any], same: Any) -> list[str]:
    names = sorted(one.keys() | other.keys())
    return [name for name in names if not same(one.get(name), other.get(name))]
