"""The handshake of the tensor channel: each side proves that it knows the cluster secret.

The worker sends HELLO: a nonce and its name. The client answers AUTH: a nonce of its own and a
proof over both nonces. The worker answers AUTH_OK with its own proof. A proof is an HMAC with
SHA-256 (RFC 2104), so the secret itself never travels, and a proof is worth nothing the next time.
"""

import hmac
import secrets

from workers.channel.frames import VERSION

NONCE = 32
"""Bytes of a nonce."""


def prove(secret: bytes, direction: bytes, first: bytes, second: bytes, worker: bytes) -> bytes:
    """What one side sends to show that it knows the secret. Each direction has its own."""
    text = b"\0".join((b"modelless", direction, bytes([VERSION]), first, second, worker))
    return hmac.digest(secret, text, "sha256")


TAG = 4
"""Bytes of the client's nonce by which both sides name their connection."""


class ClientHandshake:
    """The client's side of one handshake."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._nonce = secrets.token_bytes(NONCE)
        self._expected = b""

    @property
    def tag(self) -> bytes:
        """What the worker calls this connection where it writes down what it runs."""
        return self._nonce[:TAG]

    def answer(self, hello: bytes) -> bytes:
        """The payload of AUTH, which answers the payload of a HELLO."""
        theirs, worker = hello[:NONCE], hello[NONCE:]
        proof = prove(self._secret, b"client", theirs, self._nonce, worker)
        self._expected = prove(self._secret, b"worker", self._nonce, theirs, worker)
        return self._nonce + proof

    def is_proof(self, payload: bytes) -> bool:
        """Whether the payload of an AUTH_OK proves that the worker knows the secret."""
        return hmac.compare_digest(payload, self._expected)
