"""The handshake of the tensor channel: which version is spoken, and proofs of the cluster secret.

The worker sends HELLO: a nonce and its name. The client answers AUTH: a nonce of its own and a
proof over both nonces. The worker answers AUTH_OK with its own proof. A proof is an HMAC with
SHA-256 (RFC 2104), so the secret itself never travels, and a proof is worth nothing the next time.

The HELLO's header names the oldest version that the worker speaks, and behind the name, after a
zero byte, stands the newest. A client of version 1 takes all of that for the name and goes on. The
client picks the highest that both speak and names it in the header of AUTH; AUTH_OK repeats it. The
proofs cover the version and what was offered, so that nobody on the way can have an older one
spoken. A worker whose HELLO offers nothing speaks the version in its header and no other.
"""

import hmac
import secrets
from typing import NamedTuple

from variants.errors import ReplicaLost
from workers.channel.frames import OLDEST, VERSION

NONCE = 32
"""Bytes of a nonce."""


class NoCommonVersion(ReplicaLost):
    """The two sides share no version of the channel."""


def versions_words(oldest: int, newest: int) -> str:
    """Versions as part of a sentence."""
    return f"version {oldest}" if oldest == newest else f"versions {oldest} to {newest}"


def offer(worker: bytes) -> bytes:
    """A worker's name with the newest version that it speaks, as HELLO has it."""
    return worker + b"\0" + bytes([VERSION])


def prove(
    secret: bytes, direction: bytes, version: int, first: bytes, second: bytes, worker: bytes
) -> bytes:
    """What one side sends to show that it knows the secret. Each direction has its own.

    Args:
        worker: its name as it stands in HELLO.
    """
    text = b"\0".join((b"modelless", direction, bytes([version]), first, second, worker))
    return hmac.digest(secret, text, "sha256")


class Agreed(NamedTuple):
    """What the client makes of a HELLO."""

    version: int
    proof: bytes
    """The payload of AUTH."""


TAG = 4
"""Bytes of the client's nonce by which both sides name their connection."""


class ClientHandshake:
    """The client's side of one handshake."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._nonce = secrets.token_bytes(NONCE)
        self._expected = b""
        self.negotiated = False
        """The worker has said which versions it speaks; one that does not is older."""

    @property
    def tag(self) -> bytes:
        """What the worker calls this connection where it writes down what it runs."""
        return self._nonce[:TAG]

    def answer(self, hello: bytes, oldest: int) -> Agreed:
        """Pick a version and answer a HELLO with this payload, whose header says ``oldest``.

        Raises:
            NoCommonVersion: there is none; the sentence says what each side speaks.
        """
        theirs, worker = hello[:NONCE], hello[NONCE:]
        _, _, offered = worker.partition(b"\0")
        self.negotiated = bool(offered)
        newest = max(oldest, offered[0]) if offered else oldest
        version = min(newest, VERSION)
        if version < max(oldest, OLDEST):
            raise NoCommonVersion(
                f"it speaks {versions_words(oldest, newest)} of the channel and this side"
                f" {versions_words(OLDEST, VERSION)}: they are too many releases apart;"
                " upgrade the older one"
            )
        proof = prove(self._secret, b"client", version, theirs, self._nonce, worker)
        self._expected = prove(self._secret, b"worker", version, self._nonce, theirs, worker)
        return Agreed(version, self._nonce + proof)

    def is_proof(self, payload: bytes) -> bool:
        """Whether the payload of an AUTH_OK proves that the worker knows the secret."""
        return hmac.compare_digest(payload, self._expected)
