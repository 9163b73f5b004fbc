"""Tests dpjax.data.series on handwritten rows and on original files."""

import gzip

import numpy as np
import pytest

from dpjax.data import files
from dpjax.data import series

CONTENT = b'\xef\xbb\xbfid,title,  num\n1,a,2.5\n2,b,c,7\n3,"c,d", \n\n4,e,-1e2\n'
# Records, negative ones, and quantiles at levels j/9, of the original files.
EXPECTED = {
  'ratings': (11_123, 0, (3.60, 3.75, 3.84, 3.92, 4.00, 4.07, 4.16, 4.27)),
  'pages': (11_123, 0, (121, 188, 227, 273, 320, 368, 434, 573)),
  'earnings': (145_551, 213, (480, 7900, 13600, 21000, 30000, 40000, 54000,
                              78500)),
  'dividends': (145_551, 1198, (0, 0, 0, 0, 0, 0, 0, 300)),
}


def _parse(content=CONTENT, column='num', num_malformed=1):
  return series.parse(content, column, file='toy.csv',
                      num_malformed=num_malformed)


def test_numbers_in_their_order_without_blank_and_malformed_lines():
  np.testing.assert_array_equal(_parse(), [2.5, -100])
  assert _parse().dtype == np.float64


@pytest.mark.parametrize('arguments, message', [
  (dict(column='number'), "no column 'number'; there are id, title, num"),
  (dict(content=b''), 'there is no header'),
  (dict(content=b'  num,  num\n1,2\n'), "2 columns 'num'"),
  (dict(num_malformed=0), 'expected 0 lines with more or fewer than 3 fields, got 1'),
  (dict(column='title'), "toy.csv line 2: 'a' is not a number"),
  (dict(content=b'  num\n1\nnan\n', num_malformed=0), "line 3.*'nan'"),
  (dict(content=b'  num\n', num_malformed=0), 'no number'),
])
def test_what_is_refused(arguments, message):
  with pytest.raises(ValueError, match=message):
    _parse(**arguments)


def test_a_file_of_ones_own(tmp_path):
  (tmp_path / 'own.csv.gz').write_bytes(gzip.compress(b'x,y\n1,5\n2,6\n'))
  column = series.read(tmp_path / 'own.csv.gz', 'y', lower=0.0, upper=9.0)
  assert column.values.tolist() == [5, 6] and column[1:] == (0, 9)
  with pytest.raises(ValueError, match='lower'):
    series.read(tmp_path / 'own.csv.gz', 'y', lower=9.0, upper=0.0)


def test_files_are_compared_with_their_checksum_where_there_is_one(
    tmp_path, monkeypatch):
  monkeypatch.delenv('DPJAX_DATA_DIR', raising=False)
  (tmp_path / 'persons.csv').write_bytes(b'PINCP,INTP\n5,1\n,0\n')
  with pytest.raises(ValueError, match='not the original persons.csv'):
    series.load('earnings', data_dir=tmp_path)
  with pytest.raises(FileNotFoundError, match='asecpub21csv.zip'):
    series.load('cps_earnings', data_dir=tmp_path)
  with pytest.raises(ValueError, match='series must be one of'):
    series.load('income', data_dir=tmp_path)
  (tmp_path / 'pppub21.csv').write_bytes(b'PTOTVAL,DIV_VAL\n5,1\n7,0\n')
  assert series.load('cps_earnings', data_dir=tmp_path).values.tolist() == [
    5, 7]


@pytest.mark.parametrize('name', EXPECTED)
def test_original_files(name, data_dir):
  spec = series.SERIES[name]
  if files.find(spec.file, spec.dataset, data_dir=data_dir) is None:
    pytest.skip(f'needs the original file {spec.file.name}')
  column = series.load(name, data_dir=data_dir)
  count, below, quantiles = EXPECTED[name]
  assert column.values.shape == (count,)
  assert np.sum(column.values < column.lower) == below
  places = [-(-count * j // 9) - 1 for j in range(1, 9)]
  np.testing.assert_array_equal(np.sort(column.values)[places], quantiles)


def test_specifications_are_complete():
  assert all(spec.name == name and spec.lower < spec.upper and spec.source
             and spec.licence for name, spec in series.SERIES.items())
