"""Dependence analysis: which records each output of a function may read.

The function is traced, and each operation is followed by a rule
(`entry_rules`). The function is not run on records, so rounding, underflow,
saturation, NaN or rare branches cannot hide a dependence. The analysis may
report too much: a mean over records times zero counts as reading all of them.

An operation without a rule, such as a callback or a custom kernel, is run alone
on random numbers. An output entry that changes with a record reads it.
"""

from collections.abc import Callable, Sequence
import functools
import operator
from typing import Any

import jax
from jax.extend import core
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.grads import entries as entries_lib
from dpjax.grads import entry_indexing
from dpjax.grads import entry_rules
from dpjax.grads import jaxprs
from dpjax.grads.entries import Entries
from dpjax.grads.entries import UNKNOWN

_CALLS = frozenset('''
checkpoint closed_call composite core_call custom_dce_call custom_jvp_call
custom_lin custom_vjp_call custom_vjp_call_jaxpr jit pjit remat
remat2'''.split())

# A `scan` is followed step by step if it has at most `_FEW_STEPS` steps, or at
# most this many operations in total (with a carry: True, without: False). A
# `while` is followed for at most `_FEW_STEPS` steps. Longer loops are followed
# by the union of all steps, repeated until it grows no more (a fixed point).
_MAX_OPERATIONS = {True: 2_000, False: 20_000}
_FEW_STEPS = 16
_MAX_DELAY = 8  # Repeat at least once per array of the carry, up to this.

# Scale of random floats, and exclusive bound of random integers, of each trial.
_TRIALS = ((1.0, 2), (1.0, 10), (1e3, 2), (1e-3, 1))


class Follower:
  """Follows the equations of a traced function.

  Attributes:
    first: name of the first operation that mixes records, as a path of modules
      if they have names; '' if there is none. An operation mixes records if an
      output entry reads two records, or row i of an output [b, ...] reads
      another record than i, and this is true of no input.
  """

  def __init__(self, num_records: int):
    self.first = ''
    # Names of the calls around the current equation.
    self._scopes: list[str] = []
    self._own = np.left_shift(np.uint32(1), np.arange(num_records,
                                                      dtype=np.uint32))

  def outputs(self, closed: core.ClosedJaxpr,
              inputs: Sequence[Entries]) -> list[Entries]:
    """Returns the entries of the outputs of a function, from its inputs."""
    # Codes are hashes modulo 2^64: they overflow on purpose.
    with np.errstate(over='ignore'):
      return self._run(closed.jaxpr, [
          entries_lib.of_constant(const, -1 - number)
          for number, const in enumerate(closed.consts)], inputs)

  def _run(self, jaxpr: core.Jaxpr, consts: Sequence[Entries],
           inputs: Sequence[Entries]) -> list[Entries]:
    """Follows the equations of a jaxpr in order."""
    values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *inputs),
                      strict=True))
    read = lambda var: (entries_lib.of_constant(var.val) if isinstance(
        var, core.Literal) else values[var])
    for equation in _needed(jaxpr):
      given = list(map(read, equation.invars))
      self._scopes.append(_scope(equation))
      outputs = self._equation(equation, given)
      if not self.first and any(map(self._is_mixed, outputs)) and not any(
          map(self._is_mixed, given)):
        self.first = '/'.join(filter(None, self._scopes)) or (
            equation.primitive.name)
      self._scopes.pop()
      values.update(zip(equation.outvars, outputs, strict=True))
    return list(map(read, jaxpr.outvars))

  def _equation(self, equation: core.JaxprEqn,
                inputs: Sequence[Entries]) -> list[Entries]:
    """Follows one equation: a call, a loop, by its rule, or by trial."""
    name = equation.primitive.name
    if name in _CALLS:
      return self._closed(jaxprs.called(equation), inputs)
    if name in ('cond', 'custom_linear_solve', 'scan', 'while'):
      return {'cond': self._cond, 'custom_linear_solve': self._solve,
              'scan': self._scan, 'while': self._while}[name](equation, inputs)
    rule = entry_rules.rule_of(equation) or entry_indexing.rule_of(equation)
    return (rule or _tried)(equation, inputs)

  def _is_mixed(self, entries: Entries) -> bool:
    """Returns whether an entry reads two records, or row i another than i."""
    reads = entries_lib.narrowed(entries.reads) & ~UNKNOWN
    if entries.reads.shape[:1] == self._own.shape:
      others = ~self._own.reshape((-1,) + (1,) * (reads.ndim - 1))
      return bool(np.any(reads & others))
    # x & (x - 1) is nonzero exactly if two bits of x are set.
    return bool(np.any(reads & (reads - (reads != 0))))

  def _closed(self, function: tuple[core.Jaxpr, Sequence[Any]],
              inputs: Sequence[Entries]) -> list[Entries]:
    """Follows a function, given with its constants."""
    jaxpr, consts = function
    return self._run(jaxpr, list(map(entries_lib.of_constant, consts)), inputs)

  def _cond(self, equation: core.JaxprEqn,
            inputs: Sequence[Entries]) -> list[Entries]:
    """Follows the branch that is known to be taken, or all branches."""
    which, *operands = inputs
    branches = [(each.jaxpr, each.consts)
                for each in equation.params['branches']]
    known = which.known()
    if known is not None:
      number = int(np.clip(known, 0, len(branches) - 1))
      return self._closed(branches[number], operands)
    results = [self._closed(each, operands) for each in branches]
    return [entries_lib.combined((which, *cases), shape, 'cond')
            for shape, *cases in zip(entry_rules.shapes_of(equation), *results,
                                     strict=True)]

  def _solve(self, equation: core.JaxprEqn,
             inputs: Sequence[Entries]) -> list[Entries]:
    """Follows the solver that `custom_linear_solve` was given."""
    solver = equation.params['jaxprs'].solve
    counts = equation.params['const_lengths']
    first = counts.matvec + counts.vecmat
    return self._closed((solver.jaxpr, solver.consts), [
        *inputs[first:first + counts.solve], *inputs[sum(counts):]])

  def _scan(self, equation: core.JaxprEqn,
            inputs: Sequence[Entries]) -> list[Entries]:
    """Follows a `scan`, step by step if it is short."""
    params = equation.params
    body = params['jaxpr'].jaxpr, params['jaxpr'].consts
    count, size = params['num_consts'], params['num_carry']
    consts, carry = inputs[:count], inputs[count:count + size]
    xs, length = inputs[count + size:], params['length']
    order = range(length)[::-1] if params['reverse'] else range(length)
    if length > _FEW_STEPS and length * len(body[0].eqns) > _MAX_OPERATIONS[
        size > 0]:
      every = [entries_lib.reduced(x, [0], 'steps') for x in xs]
      step = lambda carry: self._closed(body, [*consts, *carry, *every])
      outputs = _repeated(step, carry)
      ys = [_over_steps(y, length) for y in outputs[size:]]
      return [*outputs[:size], *ys]
    steps = {}
    for i in order:
      outputs = self._closed(body, [*consts, *carry, *(
          entries_lib.rearranged(x, operator.itemgetter(i)) for x in xs)])
      carry, steps[i] = outputs[:size], outputs[size:]
    shapes = entry_rules.shapes_of(equation)[size:]
    return [*carry, *(_stacked([steps[i][k] for i in range(length)], shape)
                      for k, shape in enumerate(shapes))]

  def _while(self, equation: core.JaxprEqn,
             inputs: Sequence[Entries]) -> list[Entries]:
    """Follows a `while` loop, step by step while its predicate is known.

    A batched predicate [b] stops each entry separately.
    """
    params = equation.params
    counts = params['cond_nconsts'], params['body_nconsts']
    cond, body = ((params[key].jaxpr, params[key].consts)
                  for key in ('cond_jaxpr', 'body_jaxpr'))
    first, second = inputs[:counts[0]], inputs[counts[0]:sum(counts)]
    carry = inputs[sum(counts):]
    for _ in range(_FEW_STEPS):
      going, = self._closed(cond, [*first, *carry])
      known = going.known()
      if known is None or known.ndim:
        break
      if not known:
        return list(carry)
      carry = self._closed(body, [*second, *carry])

    def step(carry: Sequence[Entries]) -> list[Entries]:
      going, = self._closed(cond, [*first, *carry])
      new = self._closed(body, [*second, *carry])
      return [entries_lib.combined((each, entries_lib.rearranged(
          going, functools.partial(np.expand_dims, axis=tuple(range(
              going.reads.ndim, each.reads.ndim))))), each.reads.shape, 'while')
              for each in new]

    return _repeated(step, list(carry))


def _repeated(step: Callable[[Sequence[Entries]], list[Entries]],
              carry: Sequence[Entries]) -> list[Entries]:
  """Returns the outputs of any number of steps, as a fixed point.

  Args:
    step: carry -> [new carry, other outputs].
    carry: before the first step.
  """
  count = 0
  while True:  # This ends, because `reads` can only grow.
    count += 1
    outputs = step(carry)
    joined = [_joined(old, new) for old, new in zip(
        carry, outputs[:len(carry)], strict=True)]
    same = all(np.array_equal(old.reads, new.reads)
               and (old.value is None) == (new.value is None)
               for old, new in zip(carry, joined, strict=True))
    carry = joined
    # A record that enters one array of the carry may need a step for each array
    # that it passes through, and `reads` may be unchanged in between.
    if same and count >= min(len(carry), _MAX_DELAY):
      return [*carry, *outputs[len(carry):]]


def _joined(old: Entries, new: Entries) -> Entries:
  """Returns the union of entries before and after a step.

  Values are kept if they are the same in both.
  """
  same = (old.value is not None and new.value is not None
          and np.array_equal(old.value, new.value))
  reads = entries_lib.narrowed(old.reads) | entries_lib.narrowed(new.reads)
  return Entries(np.broadcast_to(reads, new.reads.shape), new.codes,
                 old.value if same else None)


def _over_steps(y: Entries, length: int) -> Entries:
  """Returns entries [length, ...] that read alike in all steps."""
  return entries_lib.spread(
      entries_lib.rearranged(Entries(*y[:2]), lambda a: a[None]),
      (length, *y.reads.shape), [0])


def _stacked(parts: Sequence[Entries], shape: Sequence[int]) -> Entries:
  """Stacks the outputs of steps to an array of this shape."""
  if not parts:
    return entries_lib.of_public(shape, 0)
  return entries_lib.by_field(lambda *fields: np.stack(fields),
                              *entries_lib.comparable(parts))


def _needed(jaxpr: core.Jaxpr) -> list[core.JaxprEqn]:
  """Returns the equations on which outputs depend, in order."""
  variables = lambda atoms: {var for var in atoms
                             if not isinstance(var, core.Literal)}
  needed, equations = variables(jaxpr.outvars), []
  for equation in reversed(jaxpr.eqns):
    if needed & set(equation.outvars):
      equations.append(equation)
      needed |= variables(equation.invars)
  return equations[::-1]


def _scope(equation: core.JaxprEqn) -> str:
  """Returns the modules around an operation, or the called function's name."""
  return str(equation.source_info.name_stack) or (
      equation.params.get('name', '') if equation.primitive.name in _CALLS
      else '')


def _tried(equation: core.JaxprEqn,
           inputs: Sequence[Entries]) -> list[Entries]:
  """Tries an operation without a rule: what changes with a record reads it.

  The entries of one output get the same code, since their expressions are
  unknown.
  """
  rng = np.random.default_rng(0)
  shapes = entry_rules.shapes_of(equation)
  codes = entries_lib.combined(
      [entries_lib.reduced(part, range(part.reads.ndim)) for part in inputs],
      (), equation.primitive.name) if inputs else entries_lib.of_public((), 0)
  everything = np.bitwise_or.reduce([
      np.bitwise_or.reduce(part.reads, None) for part in inputs] or [0])
  reads = [np.zeros(shape, np.uint32) for shape in shapes]
  seen = [np.zeros(shape, bool) for shape in shapes]
  for scale, most in _TRIALS:
    drawn = [_drawn(rng, jaxprs.aval(var), part, scale, most)
             for var, part in zip(equation.invars, inputs, strict=True)]
    before = _outputs(equation, drawn)
    for each, value in zip(seen, before, strict=True):
      each |= ~_is_nan(value)
    for bit in range(entries_lib.MAX_RECORDS):
      if not everything >> np.uint32(bit) & 1:
        continue
      changed = [_replaced(rng, jaxprs.aval(var), part, value, bit, scale,
                           most)
                 for var, part, value in zip(equation.invars, inputs, drawn,
                                             strict=True)]
      for each, old, new in zip(reads, before, _outputs(equation, changed),
                                strict=True):
        differs = (old != new) & ~(_is_nan(old) & _is_nan(new))
        each |= np.where(differs, np.uint32(1) << np.uint32(bit), np.uint32(0))
  # An entry that was NaN in all trials may read everything.
  return [Entries(np.where(ok, each, everything | UNKNOWN).astype(np.uint32),
                  np.broadcast_to(codes.codes, shape))
          for ok, each, shape in zip(seen, reads, shapes, strict=True)]


def _drawn(rng: np.random.Generator, aval: jax.core.ShapedArray,
           part: Entries, scale: float, most: int) -> Any:
  """Draws random values of an input; known integers keep their value."""
  if jnp.issubdtype(aval.dtype, jax.dtypes.prng_key):
    words = rng.integers(0, 2**32, (*aval.shape, *jax.random.key_data(
        jax.random.key(0)).shape), np.uint32)
    return jax.random.wrap_key_data(jnp.asarray(words))
  if jnp.issubdtype(aval.dtype, jnp.inexact):
    return (scale * rng.normal(size=aval.shape)).astype(aval.dtype)
  drawn = rng.integers(0, most, aval.shape)
  if part.value is not None:
    drawn = np.where(part.reads == 0, part.value, drawn)
  return drawn.astype(aval.dtype)


def _replaced(rng: np.random.Generator, aval: jax.core.ShapedArray,
              part: Entries, value: Any, bit: int, scale: float,
              most: int) -> Any:
  """Returns the values, with other random ones where record `bit` is read."""
  where = (part.reads >> np.uint32(bit) & 1).astype(bool)
  other = _drawn(rng, aval, part, scale, most)
  if isinstance(value, np.ndarray):
    if aval.dtype.kind in 'biu':
      # A small integer may be drawn twice: make sure that it changes.
      other = np.where(other == value, value == 0, other).astype(aval.dtype)
    return np.where(where, other, value)
  return jnp.where(where, other, value)


def _outputs(equation: core.JaxprEqn, values: Sequence[Any]
             ) -> list[np.ndarray]:
  """Runs one operation and returns its outputs; keys as sums of their words."""
  try:
    results = jaxprs.bind(equation, values)
  except Exception as error:
    name = equation.primitive.name
    raise ValueError(
        f'the operation {name} has no dependence rule, so it was tried on '
        f'random numbers, which failed ({errors.one_line(error)}): use other '
        'operations of JAX instead') from error
  outputs = []
  for var, out in zip(equation.outvars, results, strict=True):
    if out is None:
      out = np.zeros(jaxprs.aval(var).shape)
    elif jnp.issubdtype(out.dtype, jax.dtypes.prng_key):
      out = np.asarray(jax.random.key_data(out)).sum(-1)
    outputs.append(np.asarray(out))
  return outputs


def _is_nan(values: np.ndarray) -> np.ndarray:
  return values != values
