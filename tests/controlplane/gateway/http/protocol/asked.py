"""What several tests of the HTTP front send."""

from tests.controlplane.serving import LATE, Served, post, query

MAX_BODY = 262_144


def slow(*values: float) -> bytes:
    """A query that takes 150 ms."""
    return post(query(*values, variant=LATE))


async def answered_with(served: Served, data: bytes) -> tuple[int, str, str]:
    """The error that a connection ends with."""
    client = await served.client()
    client.send(data)
    answer = await client.answer()
    assert answer.headers["connection"] == "close"
    assert await client.ended() == b""
    return answer.error
