"""Tests that certificates state a party's name, for a day, and nothing else."""

import datetime
import ssl

import pytest

from dpjax.mpc.parties import certificates


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """Returns a folder with the certificates of two parties."""
  base = tmp_path_factory.mktemp('study')
  certificates.issue({name: base / 'deep' / name for name in (
      'server0', 'client')}, 'ab' * 16)
  return base / 'deep'


def _read(path):
  from cryptography import x509
  return x509.load_pem_x509_certificate(path.read_bytes())


def _names(name):
  return [part.value for part in name]


def test_every_certificate_is_signed_by_the_authority_of_the_study(folder):
  from cryptography import x509
  authorities = [_read(folder / name / 'authority.pem')
                 for name in ('server0', 'client')]
  assert authorities[0] == authorities[1]
  authority = authorities[0]
  assert _names(authority.subject) == _names(authority.issuer) == [
      'study ' + 'ab' * 16]
  authority.verify_directly_issued_by(authority)
  by_party = {name: _read(folder / name / 'certificate.pem')
              for name in ('server0', 'client')}
  for name, certificate in by_party.items():
    certificate.verify_directly_issued_by(authority)
    assert _names(certificate.subject) == [name]
    alternative = certificate.extensions.get_extension_for_class(
        x509.SubjectAlternativeName)
    assert alternative.value.get_values_for_type(x509.DNSName) == [name]
    assert not alternative.critical
    issuer = certificate.extensions.get_extension_for_class(
        x509.AuthorityKeyIdentifier).value
    own = authority.extensions.get_extension_for_class(
        x509.SubjectKeyIdentifier).value
    assert issuer.key_identifier == own.digest
  assert len({one.serial_number for one in by_party.values()}) == 2
  assert len({certificate.public_key().public_numbers()
              for certificate in by_party.values()}) == 2


@pytest.mark.every(1)
@pytest.mark.parametrize('file', ['authority.pem', 'certificate.pem'])
def test_only_the_authority_signs_and_all_end_after_a_day(folder, file):
  from cryptography import x509
  certificate, signs = _read(folder / 'client' / file), file == 'authority.pem'
  basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
  assert basic.critical and basic.value.ca is signs
  assert basic.value.path_length == (0 if signs else None)
  usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
  others = ('content_commitment', 'key_encipherment', 'data_encipherment',
            'key_agreement')
  assert usage.critical and not any(
      getattr(usage.value, name) for name in others)
  assert usage.value.digital_signature is not signs
  assert usage.value.key_cert_sign is usage.value.crl_sign is signs
  assert certificate.not_valid_after_utc - certificate.not_valid_before_utc == (
      datetime.timedelta(hours=24, minutes=1))
  since = (datetime.datetime.now(datetime.UTC) -
           certificate.not_valid_before_utc).total_seconds()
  assert 60 <= since < 60 + 600


@pytest.mark.parametrize('server', [True, False])
def test_connections_are_tls_1_3_of_two_certificates(folder, server):
  context = certificates.context(folder / 'server0', server=server)
  assert context.minimum_version == ssl.TLSVersion.TLSv1_3
  assert context.verify_mode == ssl.CERT_REQUIRED
  assert context.check_hostname is not server
  assert context.cert_store_stats()['x509_ca'] == 1
  if server:
    assert context.num_tickets == 0


class _Shown:
  """A connection whose other side shows a certificate with these names."""

  def __init__(self, *names):
    self._names = names

  def getpeercert(self):
    return {'subjectAltName': self._names} if self._names else None


def test_a_certificate_has_one_name():
  assert certificates.peer_name(_Shown(('DNS', 'a'), ('URI', 'b'))) == 'a'
  for names in ((), (('URI', 'b'),), (('DNS', 'a'), ('DNS', 'b'))):
    with pytest.raises(ValueError, match='a certificate must have one name'):
      certificates.peer_name(_Shown(*names))


def test_a_secret_is_written_once_for_its_owner(tmp_path):
  certificates.write_secret(tmp_path / 'key', b'one')
  assert (tmp_path / 'key').stat().st_mode & 0o777 == 0o600
  with pytest.raises(FileExistsError):
    certificates.write_secret(tmp_path / 'key', b'two')
  assert (tmp_path / 'key').read_bytes() == b'one'
