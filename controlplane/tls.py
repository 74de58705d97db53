"""TLS at the gateway: what its socket encrypts with, and which certificates its clients trust.

A client that knows the certificate's file trusts exactly that certificate, whatever authority has
signed it and whatever names it bears: the command line reaches its own gateway by a loopback
address.
"""

import ssl
from contextlib import suppress
from pathlib import Path

from variants.errors import InvalidInput


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


def _asked_for_a_password() -> str:
    """OpenSSL would ask at the terminal, which no server has."""
    raise InvalidInput(
        "setting MODELLESS_TLS_KEY: the key is encrypted; give it without a password"
    )


def trusting(certificate: str, *, any_name: bool = False) -> ssl.SSLContext:
    """For clients: the public authorities, and what a PEM file holds.

    Args:
        any_name: trust the file alone, by whatever name the gateway is called.

    Raises:
        InvalidInput: the file holds no certificate that can be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = not any_name
    if not any_name:
        _add_public_authorities(context)
    # What the file holds is trusted by itself, also where it is not its own issuer.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
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
    ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context(certificate, key).wrap_bio(ours, theirs, server_side=True)
    client = trusting(certificate, any_name=True).wrap_bio(theirs, ours)
    try:
        for _ in range(4):
            for end in (client, server):
                with suppress(ssl.SSLWantReadError):
                    end.do_handshake()
    except ssl.SSLError as error:
        raise InvalidInput(
            f"setting MODELLESS_TLS_CERT: clients would refuse {certificate}: {_reason(error)}"
        ) from error
    return str((client.getpeercert() or {}).get("notAfter", "an unknown day"))


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
