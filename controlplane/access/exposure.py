"""Exposure: from where the gateway can be reached, and what must hold before other machines can.

A gateway on loopback belongs to the users of its machine. On any other address it asks for a token,
travels encrypted or behind a proxy that encrypts, and knows the names it is called by.
"""

import re
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address

import psutil

from variants.figures import counted

LEAST_TOKEN = 16
"""The least number of characters of a token that other machines may try to guess."""
ANY = "*"
"""Stands for every name in a list of names."""
_ORIGIN = re.compile(r"(https?)://([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?")
_DEFAULT_PORT = {"http": "80", "https": "443"}


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it. A name other than localhost may be anything."""
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def is_every_address(host: str) -> bool:
    """Whether it stands for all addresses of the machine, so that it is no name to be called by."""
    address = _address(host)
    return address is not None and address.is_unspecified


def is_address_or_name(host: str) -> bool:
    """Whether it is an IP address or could be a name; not "0", which a socket takes for any."""
    if _address(host) is not None:
        return True
    labels = host.removesuffix(".").split(".")
    whole = all(label.replace("-", "").replace("_", "").isalnum() for label in labels)
    return whole and host.isascii() and not labels[-1].isdigit() and labels[-1][:2] != "0x"


def hosts_in(allowed_hosts: str) -> list[str]:
    """The names of a list that is separated by commas, each as a client could send it as its Host.

    Raises:
        ValueError: one of them is no name or address, perhaps with a port.
    """
    names = names_in(allowed_hosts)
    for name in names:
        host = re.sub(r"(?<=[^:]):[0-9]{1,5}$", "", name)
        if name != ANY and not is_address_or_name(host.removeprefix("[").removesuffix("]")):
            raise ValueError(
                f"{name!r} is no host name: they are like 'models.example.com' or"
                f" 'models.example.com:8443', as clients send them, or {ANY!r} for any"
            )
    return names


def names_in(allowed_hosts: str) -> list[str]:
    """The names of a list that is separated by commas."""
    return [name.strip() for name in allowed_hosts.split(",") if name.strip()]


def refusal(
    *, host: str, token: str, allowed_hosts: str, encrypts: bool, behind_tls_proxy: bool
) -> str | None:
    """Why a gateway must not listen there; ``None`` when it may."""
    if is_loopback(host):
        return None
    reached = f"MODELLESS_HOST={host} is reached from other machines"
    if not token:
        return (
            f"{reached}: set MODELLESS_API_TOKEN to at least {LEAST_TOKEN} characters, or"
            " MODELLESS_HOST to 127.0.0.1"
        )
    if len(token) < LEAST_TOKEN:
        return (
            f"{reached}, and MODELLESS_API_TOKEN has {counted(len(token), 'character')}: set it to"
            f" at least {LEAST_TOKEN}"
        )
    if not (encrypts or behind_tls_proxy):
        return (
            f"{reached}, and the token would travel in the clear: set MODELLESS_TLS_CERT and"
            " MODELLESS_TLS_KEY, or MODELLESS_BEHIND_TLS_PROXY=true where a proxy ends TLS"
        )
    if is_every_address(host) and not names_in(allowed_hosts):
        return (
            f"MODELLESS_HOST={host} is no name that clients call: set MODELLESS_ALLOWED_HOSTS to"
            f" the names they use, or to '{ANY}' for any"
        )
    return None


def origins_in(text: str) -> frozenset[str]:
    """The origins of a list that is separated by commas, as browsers write them; ``*`` is any.

    Raises:
        ValueError: one is no origin: a scheme, a host and perhaps a port.
    """
    return frozenset(map(_origin, names_in(text)))


def _origin(text: str) -> str:
    if text == ANY:
        return ANY
    found = _ORIGIN.fullmatch(text.lower())
    if found is None:
        raise ValueError(
            f"{text!r} is no origin: they are like 'https://app.example.com' or"
            f" 'http://localhost:3000', without a path, or '{ANY}' for any"
        )
    scheme, host, port = found.groups()
    shown = "" if port in (None, _DEFAULT_PORT[scheme]) else f":{port}"
    return f"{scheme}://{host}{shown}"


def own_addresses() -> Iterator[str]:
    """The IP addresses of this machine's interfaces now, as a Host header writes them."""
    for found in psutil.net_if_addrs().values():
        for one in found:
            address = _address(one.address.partition("%")[0])
            if address is not None:
                yield f"[{address}]" if address.version == 6 else str(address)


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None
