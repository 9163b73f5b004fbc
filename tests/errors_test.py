"""Tests dpjax.errors: values pass through, refusals are one line."""

import math

import pytest

from dpjax import errors

pytestmark = pytest.mark.every(1)


@pytest.mark.parametrize('check, good', [
  (errors.check_positive, (1, .5, 1e-300)),
  (errors.check_non_negative, (0, 0., 3.5)),
  (errors.check_probability, (1, 1., 1e-9)),
  (errors.check_open_unit, (.5, 1e-12)),
])
def test_numbers_pass_through(check, good):
  for value in good:
    assert check('x', value) is value


@pytest.mark.parametrize('check, bad, allowed', [
  (errors.check_positive, (0, -1., math.inf, math.nan),
   'be a positive number'),
  (errors.check_non_negative, (-1e-9, math.inf, -math.inf, math.nan),
   'be a number >= 0'),
  (errors.check_probability, (0, -.1, 1.0001, math.inf, math.nan),
   'lie in (0, 1]'),
  (errors.check_open_unit, (0, 1, -1, math.nan),
   'lie strictly between 0 and 1'),
])
def test_numbers_are_refused(check, bad, allowed):
  for value in bad:
    with pytest.raises(ValueError) as error:
      check('my_name', value)
    assert str(error.value) == f'my_name must {allowed}, got {value}'


def test_scales_have_a_square_in_float32():
  for value in (1e-12, 1e12, 1):
    assert errors.check_scale('x', value) is value
  for value in (0.999e-12, 1.001e12):
    with pytest.raises(ValueError, match=(
        rf'^x must lie in \[1e-12, 1e\+12\], got {value}'.replace('e+', r'e\+')
        + '; scale the loss or the features instead$')):
      errors.check_scale('x', value)
  for value in (0., -1., math.inf, math.nan):
    with pytest.raises(ValueError, match='^x must be a positive number, got'):
      errors.check_scale('x', value)


def test_ranges():
  errors.check_range(-1, 2)
  for lower, upper in ((2, 2), (3, 2), (-math.inf, 2), (1, math.inf),
                       (math.nan, 2), (1, math.nan)):
    with pytest.raises(ValueError) as error:
      errors.check_range(lower, upper)
    assert str(error.value) == (
        f'lower must be below upper, got {lower} and {upper}')


def test_numbers_of_records():
  errors.check_records((3,), 3)
  for shape in ((2,), (4,), (3, 1), ()):
    with pytest.raises(ValueError) as error:
      errors.check_records(shape, 3)
    assert str(error.value) == (
        f'there must be 3 records, got an array of shape {shape}')


def test_integers():
  assert errors.check_at_least('x', 3, 3) == 3
  for value in (2, 3.5, -1, 4., float('nan'), float('inf')):
    with pytest.raises(ValueError) as error:
      errors.check_at_least('x', value, 3)
    assert str(error.value) == f'x must be an integer >= 3, got {value}'


def test_choices():
  assert errors.check_choice('x', 'b', ('b', 'a')) == 'b'
  with pytest.raises(ValueError) as error:
    errors.check_choice('x', 'c', ('b', 'a'))
  assert str(error.value) == "x must be one of a, b; got 'c'"


def test_the_nearest_choice_is_named_where_there_is_one():
  assert errors.did_you_mean('aeg', ['sex', 'age']) == (
    "; did you mean 'age'?")
  assert errors.did_you_mean('iris', ['digits', 'mnist']) == ''
  with pytest.raises(ValueError, match="got 'ful'; did you mean 'full'"):
    errors.check_choice('mode', 'ful', ('full', 'none'))


def test_seeds():
  """Seeds from 2^32 on are refused: keys would truncate and share noise."""
  assert errors.check_seed('seed', 2**32 - 1) == 2**32 - 1
  with pytest.raises(ValueError, match=r'^seed must be below 2\^32, got'):
    errors.check_seed('seed', 2**32)
  with pytest.raises(ValueError, match='^seed must be an integer >= 0'):
    errors.check_seed('seed', -1)


def test_one_line_of_foreign_errors():
  assert errors.one_line(ValueError('\nfirst\nsecond')) == 'first'
  assert errors.one_line(EOFError()) == 'EOFError'


def test_a_long_list_of_choices_is_not_printed():
  choices = [f'name_{letter}' for letter in 'abcdefghijklm'] + ['gaussian']
  assert errors.check_choice('target', 'name_c', choices) == 'name_c'
  for given, end in (('gausian', "; did you mean 'gaussian'?"), ('xyz', ''),
                     ('gauss', "; did you mean 'gaussian'?"), ('', '')):
    with pytest.raises(errors.UnknownChoiceError) as refused:
      errors.check_choice('target', given, choices)
    assert str(refused.value) == (
        f'target must be one of 14 names, got {given!r}{end}')
