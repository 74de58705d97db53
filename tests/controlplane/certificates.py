"""Certificates that sign themselves, made for one test."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class Pair(NamedTuple):
    """Paths of a certificate and its key."""

    certificate: str
    key: str


def self_signed(
    folder: Path, name: str = "models.example", *, days: int = 10, password: bytes | None = None
) -> Pair:
    """A certificate for a name and for ::1; of ``days`` below zero it has ended."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName(
        [x509.DNSName(name), x509.IPAddress(ip_address("::1"))],
    )
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=20))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(exist_ok=True)
    pair = Pair(str(folder / "cert.pem"), str(folder / "key.pem"))
    Path(pair.certificate).write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secrecy: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        secrecy = serialization.BestAvailableEncryption(password)
    Path(pair.key).write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secrecy)
    )
    return pair
