"""What a gateway that other machines reach must have, and the sentence that says so."""

from pathlib import Path
from typing import Any

import pytest

from controlplane.access.exposure import (
    hosts_in,
    is_address_or_name,
    is_loopback,
    own_addresses,
    refusal,
)
from controlplane.settings import load_settings
from variants.errors import InvalidInput

TOKEN = "sixteen-letters!"


def why(**changes: Any) -> str | None:
    settings: dict[str, Any] = {
        "host": "10.0.0.7", "token": TOKEN, "allowed_hosts": "", "encrypts": True,
        "behind_tls_proxy": False,
    }  # fmt: skip
    return refusal(**settings | changes)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost", "LocalHost"])
def test_loopback_needs_nothing(host: str) -> None:
    assert is_loopback(host)
    assert why(host=host, token="", encrypts=False) is None


@pytest.mark.parametrize(
    "host",
    [
        "0.0.0.0", "::", "10.0.0.7", "fe80::1", "::ffff:127.0.0.1", "models.example",
        "127.0.0.1.nip.io", "localhost.example", "",
    ],
)  # fmt: skip
def test_anything_else_needs_a_token(host: str) -> None:
    everything = {"allowed_hosts": "*", "encrypts": True, "behind_tls_proxy": True}
    assert why(host=host, token="", **everything) == (
        f"MODELLESS_HOST={host} is reached from other machines: set MODELLESS_API_TOKEN to at least"
        " 16 characters, or MODELLESS_HOST to 127.0.0.1"
    )
    assert why(host=host, **everything) is None


def test_a_token_that_can_be_guessed_is_none() -> None:
    assert why(token="fifteen-letters") == (
        "MODELLESS_HOST=10.0.0.7 is reached from other machines, and MODELLESS_API_TOKEN has 15"
        " characters: set it to at least 16"
    )


def test_a_token_does_not_travel_in_the_clear() -> None:
    assert why(encrypts=False) == (
        "MODELLESS_HOST=10.0.0.7 is reached from other machines, and the token would travel in the"
        " clear: set MODELLESS_TLS_CERT and MODELLESS_TLS_KEY, or MODELLESS_BEHIND_TLS_PROXY=true"
        " where a proxy ends TLS"
    )
    assert why(encrypts=False, behind_tls_proxy=True) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "0::0"])
def test_all_addresses_are_no_name(host: str) -> None:
    assert why(host=host, allowed_hosts=" , ") == (
        f"MODELLESS_HOST={host} is no name that clients call: set MODELLESS_ALLOWED_HOSTS to the"
        " names they use, or to '*' for any"
    )
    assert why(host=host, allowed_hosts="models.example") is None
    assert why(host=host, allowed_hosts="*") is None


@pytest.mark.parametrize(
    ("host", "sound"),
    [
        ("localhost", True), ("models.example", True), ("a-1.b_2.example.", True), ("::1", True),
        ("fe80::1%eth0", True), ("xn--bcher-kva.example", True), ("1.example", True),
        # A socket takes the first four for all addresses, or for another one than it seems.
        ("", False), ("0", False), ("0x0", False), ("127.1", False), ("a b", False),
        ("http://localhost", False), ("localhost:8000", False), ("[::1]", False), (".", False),
    ],
)  # fmt: skip
def test_what_is_an_address_or_a_name(host: str, sound: bool) -> None:
    assert is_address_or_name(host) is sound


def test_the_addresses_of_this_machine_are_written_as_a_host_header() -> None:
    addresses = list(own_addresses())
    assert "127.0.0.1" in addresses
    assert not any("%" in one or (":" in one and one[0] != "[") for one in addresses)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["HOST=0.0.0.0"], "MODELLESS_HOST=0.0.0.0 is reached from other machines: set"),
        (["HOST="], "setting MODELLESS_HOST: '' is no IP address and no host name"),
        (
            ["HOST=10.0.0.7", f"API_TOKEN={TOKEN}"],
            "MODELLESS_HOST=10.0.0.7 is reached from other machines, and the token would",
        ),
        (["TLS_CERT=/c.pem"], "MODELLESS_TLS_CERT and MODELLESS_TLS_KEY must be set together"),
        (
            ["TLS_CERT=c.pem", "TLS_KEY=/k.pem"],
            "setting MODELLESS_TLS_CERT: it must be an absolute path",
        ),
    ],
)
def test_settings_refuse_it(tmp_path: Path, lines: list[str], sentence: str) -> None:
    (tmp_path / "settings.env").write_text("".join(f"MODELLESS_{line}\n" for line in lines))

    with pytest.raises(InvalidInput) as refused:
        load_settings(state_dir=tmp_path)

    assert refused.value.message.startswith(sentence)
    assert "\n" not in refused.value.message


def test_settings_that_are_protected_are_taken(tmp_path: Path) -> None:
    settings = load_settings(
        state_dir=tmp_path, host="0.0.0.0", api_token=TOKEN, behind_tls_proxy=True,
        allowed_hosts="models.example",
    )  # fmt: skip
    assert settings.gateway_url == "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "https://127.0.0.1:8000"),
        ("::", "https://[::1]:8000"),
        ("models.example", "https://models.example:8000"),
    ],
)
def test_the_gateway_s_url_says_that_it_encrypts(tmp_path: Path, host: str, url: str) -> None:
    settings = load_settings(
        state_dir=tmp_path, host=host, api_token=TOKEN, tls_cert="/c.pem", tls_key="/k.pem",
        allowed_hosts="*",
    )  # fmt: skip
    assert settings.gateway_url == url


@pytest.mark.parametrize(
    "name",
    ["models.example", "models.example:8443", "10.0.0.7:80", "[::1]:8000", "::1", "[::1]", "*"],
)
def test_what_clients_may_send_as_a_host(name: str) -> None:
    assert hosts_in(f"{name}, b.example") == [name, "b.example"]


@pytest.mark.parametrize(
    "name", ["https://models.example", "models.example/", "*.example", "models.example:"]
)
def test_what_no_client_sends_as_a_host_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is no host name: they are like"):
        hosts_in(f"a.example,{name}")
