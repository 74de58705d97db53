"""Checks of the settings: their names, and from where the gateway can be reached."""

from collections.abc import Iterator
from time import time

from controlplane.settings import Settings
from controlplane.startup.checks.finding import Finding, fine, problem, warning
from variants.errors import ModellessError
from variants.figures import counted


def names(settings: Settings) -> Iterator[Finding]:
    from controlplane.startup.settings_warnings import misspelled

    found = misspelled(settings)
    for one in found:
        yield warning("settings", one.what, one.remedy)
    if not found:
        yield fine("settings", "every name is known")


def keys(settings: Settings) -> Iterator[Finding]:
    """The file of the clients' keys, where there is one."""
    from controlplane.access import client_keys

    try:
        found = client_keys.read(settings.client_keys_path)
    except ModellessError as error:
        remedy = (
            "correct it: gateways that run keep the keys that they have, one that starts has none"
        )
        yield problem("client keys", error.message, remedy)
    else:
        count = sum(key.role is not client_keys.Role.OPERATOR for key in found)
        if fault := client_keys.token_fault(settings.client_keys_path, settings.api_token):
            yield problem("client keys", *fault.split(": ", 1))
        if settings.client_keys and not settings.client_keys_path.exists():
            what = f"{settings.client_keys}, which MODELLESS_CLIENT_KEYS names, is not there"
            yield warning("client keys", what, "make it with `modelless keys add`, or correct it")
            return
        yield fine("client keys", f"{counted(count, 'key') if count else 'no keys'} of clients")


def rules(settings: Settings) -> Iterator[Finding]:
    """What plans, queues and memories go by."""
    from planner.eviction.registry import RULES

    leaves = RULES[settings.eviction].about
    what = f"plans for {settings.objective}; memory by {settings.eviction}: {leaves}"
    yield fine("rules", f"{what}; batches by {settings.batching}")


def access(settings: Settings) -> Iterator[Finding]:
    """From where the gateway is reached, and its certificate. Unsafe settings fail earlier."""
    from controlplane.access.exposure import is_loopback
    from controlplane.access.tls import check, seconds_of
    from controlplane.startup.settings_warnings import open_to_all_clients
    from controlplane.views.machines.certificate_status import (
        REMEDY,
        CertificateLevel,
        certificate_status,
    )

    for one in open_to_all_clients(settings):
        yield warning("access", one.what, one.remedy)
    asks = "with a token" if settings.api_token else "without a token"
    who = f"this machine only, {asks}" if is_loopback(settings.host) else f"other machines, {asks}"
    if not settings.tls_cert:
        yield fine("access", f"{who}; a proxy ends TLS" if settings.behind_tls_proxy else who)
        return
    try:
        ends = check(settings.tls_cert, settings.tls_key)
    except ModellessError as error:
        yield problem("access", error.message, "correct the files that the settings name")
    else:
        said = f"{who}; TLS, with a certificate until {ends}"
        status = certificate_status(seconds_of(ends), time())
        if status.level is CertificateLevel.LASTS:
            yield fine("access", said)
        else:
            yield warning("access", said, REMEDY)
