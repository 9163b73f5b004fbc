"""Certificates of the parties of a study, and TLS contexts that use them.

Each study has its own certificate authority: a key that signs one certificate
for each party and is then discarded. Whoever holds the key of a certificate is
the party named in it. All connections use TLS 1.3 with certificates on both
sides; certificates of other studies are rejected.
"""

import datetime
import os
import pathlib
import ssl
import types
from typing import TYPE_CHECKING

from dpjax.report import files

if TYPE_CHECKING:
  from cryptography import x509
  from cryptography.hazmat.primitives.asymmetric import ec

VALID_HOURS = 24
"""Hours for which the certificates of a study are valid."""

_AUTHORITY = 'authority.pem'


def issue(folders: dict[str, pathlib.Path], session: str) -> None:
  """Creates the authority of a study, and each party's key and certificate.

  Args:
    folders: the parties' folders by name; missing ones are created so that only
      their owner can read them.
    session: identifier of the study, part of the authority's name.
  """
  # The key is never written, so no certificate can be issued later.
  authority, key = _authority(session)
  for name, folder in folders.items():
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    own, certificate = _certificate(name, authority, key)
    write_secret(folder / 'key.pem', own)
    files.replace(folder / 'certificate.pem', certificate)
    files.replace(folder / _AUTHORITY, _pem(authority))


def context(folder: pathlib.Path, *, server: bool) -> ssl.SSLContext:
  """Returns the TLS context for a party's connections.

  Args:
    folder: the party's folder, written by `issue`.
    server: True if it accepts connections, False if it makes them.
  """
  # PROTOCOL_TLS_CLIENT also checks that the called name is the peer's.
  tls_context = ssl.SSLContext(
      ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
  tls_context.minimum_version = ssl.TLSVersion.TLSv1_3
  tls_context.verify_mode = ssl.CERT_REQUIRED
  # Only this study's authority is trusted, not those of the system.
  tls_context.load_verify_locations(folder / _AUTHORITY)
  tls_context.load_cert_chain(folder / 'certificate.pem', folder / 'key.pem')
  if server:
    tls_context.num_tickets = 0  # no TLS session outlives its connection
  return tls_context


def peer_name(connection: ssl.SSLObject) -> str:
  """Returns the name in the other side's certificate."""
  entries = (connection.getpeercert() or {}).get('subjectAltName', ())
  names = [entry[1] for entry in entries if entry[0] == 'DNS']
  if len(names) != 1:
    raise ValueError(f'a certificate must have one name, got {len(names)}')
  return str(names[0])


def write_secret(path: pathlib.Path, data: bytes) -> None:
  """Writes a new file that only its owner can read; it must not exist."""
  # O_EXCL refuses a file that exists and may be open to other users.
  descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
  with os.fdopen(descriptor, 'wb') as file:
    file.write(data)


def _x509() -> types.ModuleType:
  try:
    from cryptography import x509
  except ImportError as error:
    raise ImportError('multi-party computation needs the extra `mpc`: pip '
                      'install dpjax[mpc]') from error
  return x509


def _pem(certificate: 'x509.Certificate') -> bytes:
  from cryptography.hazmat.primitives import serialization
  return certificate.public_bytes(serialization.Encoding.PEM)


def _builder(name: str, issuer: str, public_key: 'ec.EllipticCurvePublicKey'
             ) -> 'x509.CertificateBuilder':
  """Returns a builder with the fields that all certificates share."""
  x509 = _x509()
  named = lambda text: x509.Name([
      x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])
  now = datetime.datetime.now(datetime.UTC)
  minute = datetime.timedelta(minutes=1)  # tolerates clocks that differ
  return (x509.CertificateBuilder().subject_name(named(name))
          .issuer_name(named(issuer)).public_key(public_key)
          .serial_number(x509.random_serial_number())
          .not_valid_before(now - minute)
          .not_valid_after(now + datetime.timedelta(hours=VALID_HOURS))
          .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key),
                         critical=False))


def _usage(signs: bool) -> 'x509.KeyUsage':
  """Returns the allowed usage: signing certificates, or TLS connections."""
  return _x509().KeyUsage(
      digital_signature=not signs, content_commitment=False,
      key_encipherment=False, data_encipherment=False, key_agreement=False,
      key_cert_sign=signs, crl_sign=signs, encipher_only=False,
      decipher_only=False)


def _authority(session: str
               ) -> 'tuple[x509.Certificate, ec.EllipticCurvePrivateKey]':
  """Returns the self-signed certificate of a new authority, and its key."""
  from cryptography.hazmat.primitives import hashes
  from cryptography.hazmat.primitives.asymmetric import ec
  x509 = _x509()
  key = ec.generate_private_key(ec.SECP256R1())
  name = f'study {session}'
  signed = (_builder(name, name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0),
                           critical=True)
            .add_extension(_usage(True), critical=True)
            .sign(key, hashes.SHA256()))
  return signed, key


def _certificate(name: str, authority: 'x509.Certificate',
                 key: 'ec.EllipticCurvePrivateKey') -> tuple[bytes, bytes]:
  """Returns a new private key and the certificate of a party, both in PEM."""
  from cryptography.hazmat.primitives import hashes
  from cryptography.hazmat.primitives import serialization
  from cryptography.hazmat.primitives.asymmetric import ec
  x509 = _x509()
  own = ec.generate_private_key(ec.SECP256R1())
  issuer = authority.subject.get_attributes_for_oid(
      x509.NameOID.COMMON_NAME)[0].value
  assert isinstance(issuer, str)  # as `_authority` has set it
  signed = (_builder(name, issuer, own.public_key())
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]),
                           critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None),
                           critical=True)
            .add_extension(_usage(False), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(
                    key.public_key()), critical=False)
            .sign(key, hashes.SHA256()))
  return own.private_bytes(
      serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
      serialization.NoEncryption()), _pem(signed)
