"""Certificates that no authority should sign, or that none has signed."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def sign_with(authority: Path, folder: Path, name: str) -> tuple[Path, Path]:
    """Certificate and key files for a client of any name, signed with ``ca.key`` of the folder `authority`."""
    ca = x509.load_pem_x509_certificate((authority / "ca.pem").read_bytes())
    ca_key = serialization.load_pem_private_key((authority / "ca.key").read_bytes(), None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    return _write(folder, "odd", key, _builder(_name(name), ca.subject, key).sign(ca_key, hashes.SHA256()))


def self_signed(folder: Path, address: str = "127.0.0.1") -> tuple[Path, Path]:
    """Certificate and key files of a server that vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name(address), _name(address), key).add_extension(
        x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False
    )
    return _write(folder, "self-signed", key, builder.sign(key, hashes.SHA256()))


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
    )


def _write(
    folder: Path, stem: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate
) -> tuple[Path, Path]:
    files = folder / f"{stem}.pem", folder / f"{stem}.key"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files
