"""Certificates of one study, and TLS with them.

The authority of a study is a key that signs one certificate for each party and
is then forgotten. A party is who holds the key of a certificate with its name:
all connections are TLS 1.3 in which both sides show one, and no certificate of
another study is worth anything.
"""

import datetime
import os
import pathlib
import ssl

from dpjax.report import files

VALID_HOURS = 24

_AUTHORITY = 'authority.pem'


def issue(folders: dict[str, pathlib.Path], session: str) -> None:
  """Makes the authority of a study, and key and certificate of each party.

  Args:
    folders: of the parties, by name; made if they are not there, for the eyes
      of their owners only.
    session: goes into the name of the authority.
  """
  authority, key = _authority(session)
  for name, folder in folders.items():
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    own, certificate = _certificate(name, authority, key)
    write_secret(folder / 'key.pem', own)
    files.replace(folder / 'certificate.pem', certificate)
    files.replace(folder / _AUTHORITY, _pem(authority))


def context(folder: pathlib.Path, *, server: bool) -> ssl.SSLContext:
  """What a party makes its connections with.

  Args:
    folder: of the party, from `issue`.
    server: whether it accepts connections rather than making them.
  """
  made = ssl.SSLContext(
      ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
  made.minimum_version = ssl.TLSVersion.TLSv1_3
  made.verify_mode = ssl.CERT_REQUIRED
  made.load_verify_locations(folder / _AUTHORITY)
  made.load_cert_chain(folder / 'certificate.pem', folder / 'key.pem')
  if server:
    made.num_tickets = 0  # no session outlives its connection
  return made


def peer_name(connection: ssl.SSLObject) -> str:
  """The name in the certificate that the other side has shown."""
  names = [value for kind, value in
           (connection.getpeercert() or {}).get('subjectAltName', ())
           if kind == 'DNS']
  if len(names) != 1:
    raise ValueError(f'a certificate of {len(names)} names')
  return names[0]


def write_secret(path: pathlib.Path, data: bytes) -> None:
  """A new file that only its owner reads."""
  descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
  with os.fdopen(descriptor, 'wb') as file:
    file.write(data)


def _x509():
  try:
    from cryptography import x509
  except ImportError as error:
    raise ImportError('several parties need the extra `mpc`: pip install '
                      'dpjax[mpc]') from error
  return x509


def _pem(certificate) -> bytes:
  from cryptography.hazmat.primitives import serialization
  return certificate.public_bytes(serialization.Encoding.PEM)


def _builder(name: str, issuer: str, public_key):
  x509 = _x509()
  named = lambda text: x509.Name([
      x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])
  now = datetime.datetime.now(datetime.timezone.utc)
  minute = datetime.timedelta(minutes=1)  # clocks differ
  return (x509.CertificateBuilder().subject_name(named(name))
          .issuer_name(named(issuer)).public_key(public_key)
          .serial_number(x509.random_serial_number())
          .not_valid_before(now - minute)
          .not_valid_after(now + datetime.timedelta(hours=VALID_HOURS))
          .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key),
                         critical=False))


def _usage(signs: bool):
  return _x509().KeyUsage(
      digital_signature=not signs, content_commitment=False,
      key_encipherment=False, data_encipherment=False, key_agreement=False,
      key_cert_sign=signs, crl_sign=signs, encipher_only=False,
      decipher_only=False)


def _authority(session: str):
  from cryptography.hazmat.primitives import hashes
  from cryptography.hazmat.primitives.asymmetric import ec
  x509 = _x509()
  key = ec.generate_private_key(ec.SECP256R1())
  name = f'study {session}'
  made = (_builder(name, name, key.public_key())
          .add_extension(x509.BasicConstraints(ca=True, path_length=0),
                         critical=True)
          .add_extension(_usage(True), critical=True)
          .sign(key, hashes.SHA256()))
  return made, key


def _certificate(name: str, authority, key) -> tuple[bytes, bytes]:
  """Key and certificate of a party, in PEM."""
  from cryptography.hazmat.primitives import hashes
  from cryptography.hazmat.primitives import serialization
  from cryptography.hazmat.primitives.asymmetric import ec
  x509 = _x509()
  own = ec.generate_private_key(ec.SECP256R1())
  issuer = authority.subject.get_attributes_for_oid(
      x509.NameOID.COMMON_NAME)[0].value
  made = (_builder(name, issuer, own.public_key())
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
      serialization.NoEncryption()), _pem(made)
