"""TLS at the gateway: what its socket encrypts with, and which certificates its clients trust.

A client that knows the certificate's file trusts exactly that certificate, whatever authority has
signed it and whatever names it bears: the command line reaches its own gateway by a loopback
address. It talks to that one also when the certificate has ended, which it then says.
"""

import asyncio
import logging
import ssl
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from variants.errors import InvalidInput

log = logging.getLogger(__name__)

LOOK_S = 2.0
"""How often it is looked whether a certificate has been renewed."""
NO_CHECK_TIME = 0x200000
"""``X509_V_FLAG_NO_CHECK_TIME`` of OpenSSL, which Python's ``ssl`` has no name for: what has ended
is read, too."""


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """What a listening socket encrypts with: TLS 1.2 or newer, HTTP/1.1.

    Raises:
        InvalidInput: the files cannot be read, are not PEM, or do not belong together.
    """
    for name, path in (("MODELLESS_TLS_CERT", certificate), ("MODELLESS_TLS_KEY", key)):
        try:
            Path(path).read_bytes()
        except OSError as error:
            raise InvalidInput(
                f"setting {name}: {path} cannot be read: {error.strerror}"
            ) from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password=_asked_for_a_password)
    except ssl.SSLError as error:
        raise InvalidInput(
            f"settings MODELLESS_TLS_CERT and MODELLESS_TLS_KEY: {certificate} and {key} are no"
            f" certificate and its key, both as PEM: {_reason(error)}"
        ) from error
    return context


class Pair(NamedTuple):
    """What the files of a certificate and its key hold, as PEM."""

    certificate: bytes
    key: bytes


class FollowedCertificate:
    """A gateway's certificate and key, as their files have them now.

    They are read again when they have changed: whoever renews a certificate in its place starts
    nothing anew. Connections that are open keep the one that they began with. Files that cannot be
    used, such as a new certificate beside the old key, change nothing.

    Attributes:
        context: for listening sockets; each handshake takes the newest certificate.
        pair: that one.
        ends_s: when that one ends, as Unix time; None where it cannot be said.
    """

    def __init__(self, certificate: str, key: str) -> None:
        """
        Raises:
            InvalidInput: as ``server_context``.
        """
        self._files = certificate, key
        self._newest = server_context(*self._files)
        self.pair = self._read()
        self.ends_s = ends_s(self._newest, certificate)
        self._told = ""
        """Why the files cannot be used, as was told."""
        self._doubted = ""
        """Why they could not be at the last look."""
        self.context = server_context(*self._files)
        self.context.sni_callback = self._choose

    async def follow(self) -> None:
        """Wait a moment, and look."""
        await asyncio.sleep(LOOK_S)
        await asyncio.to_thread(self.look)

    def look(self) -> None:
        """Take over what the files hold, if it is something else."""
        try:
            found = self._read()
            if found == self.pair:
                self._told = self._doubted = ""
                return
            newest = server_context(*self._files)
            until_s = ends_s(newest, self._files[0])
        except (InvalidInput, OSError) as error:
            # Certificate and key are written one after the other: the second look may find both.
            again, self._doubted = str(error) == self._doubted, str(error)
            if again and str(error) != self._told:
                log.error("the certificate stays as it was: %s", error)
                self._told = str(error)
            return
        if self._read() != found:
            return  # it was being written: the next look sees the whole
        self._newest, self.pair, self.ends_s = newest, found, until_s
        self._told = self._doubted = ""
        log.info("the certificate in %s is another one now", self._files[0])

    def _read(self) -> Pair:
        certificate, key = (Path(file).read_bytes() for file in self._files)
        return Pair(certificate, key)

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        """Called by OpenSSL in each handshake, also where the client names no host."""
        connection.context = self._newest


def _asked_for_a_password() -> str:
    """OpenSSL would ask at the terminal, which no server has."""
    raise InvalidInput(
        "setting MODELLESS_TLS_KEY: the key is encrypted; give it without a password"
    )


def trusting(certificate: str, *, any_name: bool = False, any_time: bool = False) -> ssl.SSLContext:
    """For clients: the public authorities, and what a PEM file holds.

    Args:
        any_name: trust the file alone, by whatever name the gateway is called.
        any_time: also where the certificate has ended.

    Raises:
        InvalidInput: the file holds no certificate that can be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = not any_name
    if not any_name:
        _add_public_authorities(context)
    # What the file holds is trusted by itself, also where it is not its own issuer.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if any_time:
        context.verify_flags |= ssl.VerifyFlags(NO_CHECK_TIME)
    try:
        context.load_verify_locations(certificate)
    except OSError as error:  # an SSLError is one, too
        raise InvalidInput(
            f"{certificate} is no certificate that can be read: {_reason(error)}"
        ) from error
    return context


def public_context() -> ssl.SSLContext:
    """For clients of a gateway that was named: the machine's authorities, and the public ones.

    OpenSSL itself takes another file for the machine's from ``SSL_CERT_FILE``.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _add_public_authorities(context)
    return context


def trusting_nobody() -> ssl.SSLContext:
    """For clients of a gateway without TLS: reading the authorities would take them 30 ms."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def check(certificate: str, key: str) -> str:
    """The day on which the certificate ends, after a handshake in memory that uses it.

    Raises:
        InvalidInput: the files cannot be used, or clients would refuse the certificate.
    """
    try:
        return _shown(server_context(certificate, key), trusting(certificate, any_name=True))
    except ssl.SSLError as error:
        raise InvalidInput(
            f"setting MODELLESS_TLS_CERT: clients would refuse {certificate}: {_reason(error)}"
        ) from error


def ends_s(context: ssl.SSLContext, certificate: str) -> float | None:
    """When a certificate ends, as Unix time, also where that is over; None where nobody can say.

    Args:
        context: what a listening socket encrypts with.
        certificate: the file that it was made of.

    Raises:
        InvalidInput: the file holds no certificate that can be read.
    """
    client = trusting(certificate, any_name=True, any_time=True)
    try:
        return float(seconds_of(_shown(context, client)))
    except ssl.SSLError:
        return None


def _shown(server: ssl.SSLContext, client: ssl.SSLContext) -> str:
    """The day on which the certificate ends that a client is shown in a handshake in memory.

    Raises:
        ssl.SSLError: the client refuses it.
    """
    ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(theirs, ours),
        server.wrap_bio(ours, theirs, server_side=True),
    )
    for _ in range(4):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return str((ends[0].getpeercert() or {})["notAfter"])


def seconds_of(day: str) -> int:
    """Unix time of a day as ``check`` says it."""
    return ssl.cert_time_to_seconds(day)


def _add_public_authorities(context: ssl.SSLContext) -> None:
    import certifi

    context.load_default_certs()
    context.load_verify_locations(certifi.where())


def _reason(error: OSError) -> str:
    """What OpenSSL or the system says, in one phrase."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    said = error.reason if isinstance(error, ssl.SSLError) else error.strerror
    return (said or "it is not PEM").replace("_", " ").lower()
