"""Hosts, origins and tokens, without a server."""

from pathlib import Path
from typing import Any

import pytest

from controlplane.gateway.http.access import Access
from controlplane.settings import load_settings
from variants.errors import Forbidden, InvalidInput, Unauthenticated

EXPOSED: dict[str, Any] = {"api_token": "sixteen-letters!", "behind_tls_proxy": True}
RIGHT = "Bearer sixteen-letters!"


def access(folder: Path, **settings: Any) -> Access:
    return Access(load_settings(state_dir=folder, **settings))


def outcome(rules: Access, **headers: str) -> type[Exception] | None:
    """The kind of error that a request with these headers gets."""
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    error = rules.check(pairs)
    return None if error is None else type(error)


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8000", "LocalHost:1", "127.0.0.1", "127.0.0.1:8000", "[::1]:8000"],
)
def test_loopback_names_are_ours(tmp_path: Path, host: str) -> None:
    rules = access(tmp_path)
    for _ in range(2):  # the second time it is remembered
        assert outcome(rules, host=host) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "localhost:80:80",
        "localhost:", "localhost:x", "::1", "192.168.0.1", "0.0.0.0", "user@localhost", "*",
    ],
)  # fmt: skip
def test_other_names_are_not(tmp_path: Path, host: str) -> None:
    assert outcome(access(tmp_path), host=host) is Forbidden


def test_a_host_is_needed(tmp_path: Path) -> None:
    assert outcome(access(tmp_path)) is InvalidInput
    assert outcome(access(tmp_path), host="") is InvalidInput


def test_what_was_refused_is_not_remembered_and_memory_is_bounded(tmp_path: Path) -> None:
    rules = access(tmp_path, allowed_hosts="known.example")
    for port in range(1_000):
        assert outcome(rules, host=f"evil.example:{port}") is Forbidden
        assert outcome(rules, host=f"known.example:{port}") is None
    assert len(rules._seen) == 100


@pytest.mark.parametrize(
    ("settings", "host"),
    [
        ({"allowed_hosts": "a.example, B.example"}, "b.example:9"),
        ({"allowed_hosts": "a.example:8443"}, "a.example:8443"),
        ({"allowed_hosts": "*"}, "whatever.example"),
        ({"host": "10.0.0.7"}, "10.0.0.7:8000"),
        ({"host": "fe80::1"}, "[fe80::1]:8000"),
    ],
)
def test_settings_allow_more_names(tmp_path: Path, settings: dict[str, str], host: str) -> None:
    assert outcome(access(tmp_path), host=host) is Forbidden
    assert outcome(access(tmp_path, **EXPOSED, **settings), authorization=RIGHT, host=host) is None


@pytest.mark.parametrize("every", ["0.0.0.0", "::"])
@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("models.example", True), ("models.example:443", True), ("localhost:8000", True),
        ("10.0.0.7:8000", True), ("[fe80::1]:8000", True), ("10.0.0.8:8000", False),
        ("evil.example", False), ("0.0.0.0:8000", False), ("[::]:8000", False),
    ],
)  # fmt: skip
def test_on_all_addresses_names_and_own_addresses_are_ours(
    tmp_path: Path, every: str, host: str, allowed: bool
) -> None:
    settings = load_settings(
        state_dir=tmp_path, host=every, allowed_hosts="models.example", **EXPOSED
    )
    rules = Access(settings, ["10.0.0.7", "[fe80::1]"])
    expected = None if allowed else Forbidden
    assert outcome(rules, host=host, authorization=RIGHT) is expected


def test_an_allowed_name_with_a_port_is_allowed_on_that_port_only(tmp_path: Path) -> None:
    rules = access(tmp_path, allowed_hosts="a.example:8443")
    assert outcome(rules, host="a.example:8444") is Forbidden
    assert outcome(rules, host="a.example") is Forbidden


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://localhost:8000", True),
        ("https://LOCALHOST:8000", True),
        ("https://proxy.example", True),
        ("http://localhost:3000", False),
        ("http://127.0.0.1:8000", False),
        ("http://evil.example", False),
        ("http://localhost:8000.evil.example", False),
        ("file://localhost:8000", False),
        ("localhost:8000", False),
        ("null", False),
    ],
)
def test_only_our_own_pages_may_call(tmp_path: Path, origin: str, allowed: bool) -> None:
    """Another port on this machine is another site, too."""
    rules = access(tmp_path, allowed_hosts="proxy.example")
    expected = None if allowed else Forbidden
    assert outcome(rules, host="localhost:8000", origin=origin) is expected


def test_any_host_does_not_mean_any_page(tmp_path: Path) -> None:
    rules = access(tmp_path, allowed_hosts="*")
    assert outcome(rules, host="a.example", origin="http://a.example") is None
    assert outcome(rules, host="a.example", origin="http://b.example") is Forbidden


@pytest.mark.parametrize(
    ("authorization", "allowed"),
    [
        ("Bearer sesame", True),
        ("bearer  sesame ", True),
        ("Bearer Sesame", False),
        ("Bearer sesam", False),
        ("Bearer sesames", False),
        ("Bearer sesame sesame", False),
        ("Bearer", False),
        ("Basic sesame", False),
        ("sesame", False),
        ("", False),
        ("Bearer s\xe9same", False),
    ],
)
def test_a_token_must_match(tmp_path: Path, authorization: str, allowed: bool) -> None:
    rules = access(tmp_path, api_token="sesame")
    expected = None if allowed else Unauthenticated
    assert outcome(rules, host="localhost", authorization=authorization) is expected
    assert outcome(rules, host="localhost") is Unauthenticated


@pytest.mark.parametrize(
    ("authorization", "sentence"),
    [
        ("", "an Authorization header with 'Bearer TOKEN' is required"),
        ("Bearer ", "an Authorization header with 'Bearer TOKEN' is required"),
        ("Basic sesame", "an Authorization header with 'Bearer TOKEN' is required"),
        ("Bearer sesam", "the token or key that came is not known here"),
    ],
)
def test_a_wrong_token_is_told_from_none(tmp_path: Path, authorization: str, sentence: str) -> None:
    headers = [(b"host", b"localhost"), (b"authorization", authorization.encode())]
    error = access(tmp_path, api_token="sesame").check(headers)
    assert error is not None
    assert error.message == sentence


def test_without_a_token_none_is_asked_for(tmp_path: Path) -> None:
    assert outcome(access(tmp_path), host="localhost", authorization="Bearer any") is None


# -- gRPC -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (None, None),
        (b"", None),
        (b"https://pages.example", None),
        (b"https://pages.example:8443", None),
        (b"https://elsewhere.example", Forbidden),
        (b"http://127.0.0.1:8000", Forbidden),
        (b"null", Forbidden),
    ],
)
def test_a_call_of_a_page_needs_an_allowed_name(
    tmp_path: Path, origin: bytes | None, expected: type[Exception] | None
) -> None:
    found = access(tmp_path, allowed_hosts="pages.example").permit_call(origin, None)
    assert (None if found is None else type(found)) is expected


def test_a_call_needs_the_token_unless_it_is_open_to_all(tmp_path: Path) -> None:
    rules = access(tmp_path, api_token="sesame")
    assert isinstance(rules.permit_call(None, None), Unauthenticated)
    assert isinstance(rules.permit_call(None, b"Bearer nothing"), Unauthenticated)
    assert rules.permit_call(None, b"Bearer sesame") is None
    assert rules.permit_call(None, None, open=True) is None
    assert access(tmp_path).permit_call(None, None) is None
