"""A known head: what is taken without being parsed is what the parser would have made of it."""

from typing import Any

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.http.access import KnownClients
from controlplane.gateway.http.known_head import (
    LONGEST,
    REMEMBERED,
    KnownHead,
    KnownHeads,
    known_head,
)

HEAD = (
    b"POST /v1/query?x=1 HTTP/1.1\r\nHost: localhost:8000\r\nContent-Type: application/json\r\n"
    b"Content-Length: %s\r\nX-Request-Id: a\r\n\r\n"
)
MOST = 1_000


class Parsed:
    """What httptools makes of bytes."""

    def __init__(self, data: bytes) -> None:
        self.url, self.body, self.complete = b"", b"", 0
        self.headers: list[tuple[bytes, bytes]] = []
        parser = httptools.HttpRequestParser(self)
        parser.feed_data(data)
        self.keep_alive = parser.should_keep_alive()

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete += 1


def request(length: bytes, body: bytes, head: bytes = HEAD) -> bytes:
    return head % length + body


def learnt(data: bytes) -> KnownHead | None:
    parsed = Parsed(data)
    return known_head(data, parsed.url.partition(b"?")[0], dict(parsed.headers))


KNOWN: Any = learnt(request(b"3", b"abc"))


def test_heads_are_known_to_other_connections_while_the_keys_are_the_same() -> None:
    plain = HEAD.replace(b"X-Request-Id: a\r\n", b"")
    with_key = plain.replace(b"Host", b"Authorization: Bearer a\r\nHost")
    heads, keys = KnownHeads(), KnownClients()
    for head in (plain, with_key, HEAD):
        found = learnt(request(b"3", b"abc", head))
        assert found is not None
        heads.add(found, keys)
    found = heads.of(request(b"2", b"xy", plain), MOST, keys)
    assert found is not None
    assert found.target == b"/v1/query"
    assert heads.of(request(b"2", b"xy", plain), MOST, KnownClients()) is None
    assert heads.of(request(b"3", b"abc", with_key), MOST, keys) is None
    assert heads.of(request(b"3", b"abc", HEAD), MOST, keys) is None


def test_only_the_last_heads_are_known_to_others() -> None:
    heads, keys = KnownHeads(), KnownClients()
    datas = [
        request(
            b"3", b"abc", b"POST /v1/query HTTP/1.1\r\nX: %d\r\nContent-Length: %%s\r\n\r\n" % at
        )
        for at in range(REMEMBERED + 1)
    ]
    for data in datas:
        found = learnt(data)
        assert found is not None
        heads.add(found, keys)
    assert [heads.of(data, MOST, keys) is not None for data in datas] == [False] + REMEMBERED * [
        True
    ]


def test_another_body_of_another_length_is_taken() -> None:
    assert KNOWN.target == b"/v1/query"
    assert b"content-length" not in KNOWN.fields
    for body in (b"", b"x", b"y" * 77, b"\r\n\r\nPOST /"):
        data = request(b"%d" % len(body), body)
        assert data[KNOWN.body_at(data, MOST) :] == body


@pytest.mark.parametrize(
    "data",
    [
        request(b"3", b"ab"),
        request(b"3", b"abcd"),
        request(b"3", b"abc") * 2,
        request(b"", b"abc"),
        request(b" 3", b"abc"),
        request(b"3 ", b"abc"),
        request(b"+3", b"abc"),
        request(b"0x3", b"abc"),
        request(b"3\r\nContent-Length: 3", b"abc"),
        request(b"3\r\nTransfer-Encoding: chunked", b"3\r\nabc\r\n0\r\n\r\n"),
        request(b"0000000003", b"abc"),
        request(b"1001", b"x" * 1_001),
        request(b"3", b"abc").replace(b"localhost", b"evil.host"),
        request(b"3", b"abc").replace(b"Id: a", b"Id: b"),
        request(b"3", b"abc").lower(),
        request(b"3", b"abc")[:-5],
        b"",
        b"\r\n" + request(b"3", b"abc"),
    ],
)
def test_whatever_else_is_different_is_parsed(data: bytes) -> None:
    assert KNOWN.body_at(data, MOST) == 0


@pytest.mark.parametrize(
    "head",
    [
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: %s\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: %s\r\nContent-Length: 3\r\n\r\n",
        b"POST / HTTP/1.1\r\nX: " + b"x" * LONGEST + b"\r\nContent-Length: %s\r\n\r\n",
        b"POST / HTTP/1.1\r\nX: 1%s\r\n\r\n",
        b"",
    ],
)
def test_a_head_that_says_more_than_a_length_is_not_remembered(head: bytes) -> None:
    data = head % b"3" + b"abc" if b"%s" in head else head
    fields = {b"transfer-encoding": b"chunked"} if b"Transfer" in head else {}
    assert known_head(data, b"/", fields) is None


@given(
    names=st.lists(st.sampled_from([b"Host", b"X-A", b"accept", b"Cookie"]), max_size=4),
    value=st.text("abc09:;,= \t", max_size=8).map(str.encode),
    name=st.sampled_from([b"Content-Length", b"content-length", b"CONTENT-LENGTH"]),
    gap=st.sampled_from([b"", b" ", b"  ", b"\t"]),
    at=st.integers(0, 4),
    bodies=st.tuples(st.binary(max_size=30), st.binary(max_size=30)),
    digits=st.sampled_from([b"%d", b"%03d", b"%9d", b"%d "]),
    close=st.sampled_from([b"", b"Connection: close\r\n", b"Connection: keep-alive\r\n"]),
)
def test_what_is_taken_is_what_the_parser_makes_of_it(
    names: list[bytes],
    value: bytes,
    name: bytes,
    gap: bytes,
    at: int,
    bodies: tuple[bytes, bytes],
    digits: bytes,
    close: bytes,
) -> None:
    lines = [b"%s: %s" % (each, value) for each in names]
    first, second = (
        b"POST /v1/query HTTP/1.1\r\n%s%s\r\n\r\n%s"
        % (
            close,
            b"\r\n".join([*lines[:at], b"%s:%s%s" % (name, gap, length), *lines[at:]]),
            body,
        )
        for body, length in (
            (bodies[0], b"%d" % len(bodies[0])),
            (bodies[1], digits % len(bodies[1])),
        )
    )
    known = learnt(first)
    assert known is not None
    at = known.body_at(second, MOST)
    if not at:
        assert digits == b"%d " or gap.strip() or b" " in digits % len(bodies[1])
        return
    before, after = Parsed(first), Parsed(second)
    assert after.complete == 1
    assert (second[at:], known.target) == (after.body, after.url)
    own = {key: text for key, text in after.headers if key != b"content-length"}
    assert known.fields == own
    assert before.keep_alive == after.keep_alive


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        (b"", True),
        (b"Authorization: Bearer a\r\n", True),
        (b"X-Request-Id: a\r\n", False),
        (b"Content-Encoding: gzip\r\n", False),
        (b"Via: 1.1 proxy\r\n", False),
    ],
)
def test_what_an_answer_goes_by_is_not_plain(line: bytes, plain: bool) -> None:
    head = b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %%s\r\n%s\r\n"
    named = b"/v2/models/a/infer", b"/v2/models/a/versions/b/infer"
    for target, asks in ((b"/v1/query", plain), (named[0], plain), (named[1], False)):
        known = learnt(request(b"3", b"abc", head % (target, line)))
        assert known is not None
        assert known.plain is asks
