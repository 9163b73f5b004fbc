"""Generates all mutants of a Python source; each replaces one span of text."""

import ast
from collections.abc import Iterator, Set
import re
from typing import NamedTuple

# Functions that are replaced by their counterparts.
_SWAPPED: dict[str, str] = {}
for _pair in (('max', 'min'), ('maximum', 'minimum'), ('fmax', 'fmin'),
              ('amax', 'amin'), ('argmax', 'argmin'), ('ceil', 'floor'),
              ('any', 'all'), ('sum', 'mean'), ('logaddexp', 'maximum'),
              ('upper', 'lower'), ('up', 'down'), ('above', 'below')):
  _SWAPPED |= {_pair[0]: _pair[1], _pair[1]: _pair[0]}
# Functions of one main argument; a call is replaced by that argument.
_DROPPED = {'abs', 'absolute', 'sqrt', 'ceil', 'floor', 'clip', 'nextafter',
            'log1p', 'expm1', 'exp', 'square', 'sorted', 'cumsum', 'round',
            'stop_gradient', 'nan_to_num'}
_COMPARED = {ast.Lt: ('<', '<='), ast.LtE: ('<=', '<'), ast.Gt: ('>', '>='),
             ast.GtE: ('>=', '>'), ast.Eq: ('==', '!='),
             ast.NotEq: ('!=', '=='), ast.Is: ('is', 'is not'),
             ast.In: ('in', 'not in'), ast.IsNot: ('is not', 'is'),
             ast.NotIn: ('not in', 'in')}
_COMPUTED = {ast.Add: ('+', '-'), ast.Sub: ('-', '+'), ast.Mult: ('*', '/'),
             ast.Div: ('/', '*'), ast.FloorDiv: ('//', '*'),
             ast.Pow: ('**', '*'), ast.BitAnd: ('&', '|'),
             ast.BitOr: ('|', '&'), ast.LShift: ('<<', '>>'),
             ast.RShift: ('>>', '<<')}
# Keyword arguments of these libraries count as optional and may be dropped.
_LIBRARIES = {'np', 'jnp', 'jax', 'lax', 'math', 'scipy', 'stats', 'special',
              'random', 'optax'}
# Symmetric functions, whose arguments are not swapped.
_SYMMETRIC = {'max', 'min', 'maximum', 'minimum', 'fmax', 'fmin', 'logaddexp',
              'hypot', 'gcd', 'lcm', 'add', 'multiply', 'allclose', 'isclose'}
# Calls and functions that only make text for people; they are not mutated.
_TEXT_CALLS = {'warn', 'print', 'format', 'join', 'TypeVar', 'isinstance',
               'getattr', 'NamedTuple'}
_TEXT_FUNCTIONS = {'__repr__', '__str__', 'facts', '_facts', 'describe'}


class Mutant(NamedTuple):
  """One small fault in a source.

  Attributes:
    file: path of the source, relative to the root of the repository.
    line: number of the first changed line.
    statement: number of the first line of the statement with the fault.
    operator: kind of the fault.
    start: offset of the first replaced byte.
    end: offset after the last replaced byte.
    replacement: text that replaces these bytes.
    before: the changed lines without the fault, joined by single spaces.
    after: the changed lines with the fault, joined by single spaces.
  """
  file: str
  line: int
  statement: int
  operator: str
  start: int
  end: int
  replacement: str
  before: str
  after: str

  def apply(self, source: bytes) -> bytes:
    """Returns the source with the fault."""
    return (source[:self.start] + self.replacement.encode()
            + source[self.end:])

  def is_valid(self, source: bytes) -> bool:
    """Returns whether the faulty source is valid and differs in its syntax."""
    try:
      mutated = ast.parse(self.apply(source))
    except SyntaxError:
      return False
    return ast.dump(mutated) != ast.dump(ast.parse(source))


class Optional(NamedTuple):
  """The declarations of a package, to see which arguments can be dropped.

  Attributes:
    keywords: pairs of a function or class and an argument with a default.
    names: names of all functions and classes.
  """
  keywords: Set[tuple[str, str]]
  names: Set[str]


def declared(sources: Iterator[bytes]) -> Optional:
  """Returns names and optional arguments of all functions in some sources."""
  keywords, names = set(), set()
  for source in sources:
    for node in ast.walk(ast.parse(source)):
      if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        names.add(node.name)
      if isinstance(node, ast.FunctionDef):
        given = node.args
        positional = given.posonlyargs + given.args
        optional = positional[len(positional) - len(given.defaults):]
        optional += [argument for argument, default in zip(
            given.kwonlyargs, given.kw_defaults, strict=True) if default]
        keywords |= {(node.name, argument.arg) for argument in optional}
      elif isinstance(node, ast.ClassDef):
        keywords |= {(node.name, field.target.id) for field in node.body
                     if isinstance(field, ast.AnnAssign) and field.value
                     and isinstance(field.target, ast.Name)}
  return Optional(keywords, names)


class _Finder:
  """Walks the syntax tree of a source and collects its mutants."""

  def __init__(self, file: str, source: bytes, optional: Optional):
    self._file, self._source, self._optional = (file, source, optional)
    self._lines = [0]
    for line in source.splitlines(keepends=True):
      self._lines.append(self._lines[-1] + len(line))
    self._statement = 1
    self.mutants: list[Mutant] = []

  def _span(self, node: ast.expr | ast.stmt | ast.keyword
            ) -> tuple[int, int]:
    """Returns the byte offsets of a node's start and end."""
    assert node.end_lineno is not None and node.end_col_offset is not None
    return (self._lines[node.lineno - 1] + node.col_offset,
            self._lines[node.end_lineno - 1] + node.end_col_offset)

  def _text(self, node: ast.expr) -> str:
    start, end = self._span(node)
    return self._source[start:end].decode()

  def _add(self, operator: str, start: int, end: int, replacement: str):
    """Adds the mutant that replaces these bytes."""
    line = self._source.count(b'\n', 0, start) + 1
    stop = self._source.find(b'\n', end)
    stop = len(self._source) if stop < 0 else stop
    begin = self._lines[line - 1]
    flat = lambda text: ' '.join(text.decode().split())
    self.mutants.append(Mutant(
        self._file, line, self._statement, operator, start, end, replacement,
        flat(self._source[begin:stop]),
        flat(self._source[begin:start] + replacement.encode()
             + self._source[end:stop])))

  def _replace(self, operator: str, node: ast.expr | ast.stmt,
               replacement: str) -> None:
    self._add(operator, *self._span(node), replacement)

  def _token(self, left: ast.expr, right: ast.expr,
             token: str) -> tuple[int, int]:
    """Returns the span of an operator between two operands."""
    start, end = self._span(left)[1], self._span(right)[0]
    gap = re.sub(rb'#[^\n]*', lambda match: b' ' * len(match.group()),
                 self._source[start:end])
    pattern = re.escape(token).replace(r'\ ', r'\s+').encode()
    match = re.search(pattern, gap)
    assert match, f'no {token} between the operands'
    return start + match.start(), start + match.end()

  def walk(self, node: ast.AST) -> None:
    """Adds the mutants of a node and of all below it."""
    if isinstance(node, (ast.JoinedStr, ast.Raise, ast.Import,
                         ast.ImportFrom)):
      return
    if isinstance(node, ast.FunctionDef) and node.name in _TEXT_FUNCTIONS:
      return
    if isinstance(node, ast.Call) and _name(node.func) in _TEXT_CALLS:
      return
    outer = self._statement
    if isinstance(node, ast.stmt):
      self._statement = node.lineno
    method = getattr(self, f'_of_{type(node).__name__.lower()}', None)
    if method:
      method(node)
    for field, value in ast.iter_fields(node):
      if field not in ('annotation', 'returns', 'decorator_list'):
        for part in value if isinstance(value, list) else [value]:
          if isinstance(part, ast.AST):
            self.walk(part)
    self._statement = outer

  def _of_compare(self, node: ast.Compare):
    lefts = [node.left, *node.comparators]
    for left, sign, right in zip(lefts, node.ops, node.comparators):
      token, other = _COMPARED[type(sign)]
      start, end = self._token(left, right, token)
      self._add('comparison', start, end, other)

  def _of_binop(self, node: ast.BinOp):
    if any(isinstance(part, ast.JoinedStr) or isinstance(part, ast.Constant)
           and isinstance(part.value, str)
           for part in (node.left, node.right)):
      return
    if type(node.op) not in _COMPUTED:
      return
    token, other = _COMPUTED[type(node.op)]
    start, end = self._token(node.left, node.right, token)
    self._add('arithmetic', start, end, other)
    first, last = self._span(node)
    left = self._source[first:start].decode().rstrip()
    right = self._source[end:last].decode().lstrip()
    if isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
      dropped = ('term' if isinstance(node.op, (ast.Add, ast.Sub)) else
                 'factor')
      self._add(f'{dropped} dropped', first, last, left)
      if isinstance(node.op, (ast.Add, ast.Mult)):
        self._add(f'{dropped} dropped', first, last, right)

  def _of_augassign(self, node: ast.AugAssign):
    if type(node.op) in _COMPUTED:
      token, other = _COMPUTED[type(node.op)]
      start, end = self._token(node.target, node.value, f'{token}=')
      self._add('arithmetic', start, end, f'{other}=')

  def _of_constant(self, node: ast.Constant):
    value = node.value
    if isinstance(value, bool):
      self._replace('constant', node, str(not value))
    elif isinstance(value, int):
      self._replace('constant', node, str(value + 1))
    elif isinstance(value, float):
      self._replace('constant', node, repr(1.5 * value) if value else '1.')

  def _of_unaryop(self, node: ast.UnaryOp):
    if isinstance(node.op, (ast.USub, ast.Not)):
      what = 'negation' if isinstance(node.op, ast.USub) else 'not'
      start, end = self._span(node)
      text = self._source[start:end].decode()
      self._add(f'{what} dropped', start, end,
                text.removeprefix('-').removeprefix('not').strip())

  def _of_boolop(self, node: ast.BoolOp):
    texts = [f'({self._text(value)})' for value in node.values]
    joined, other = (('and', 'or') if isinstance(node.op, ast.And) else
                     ('or', 'and'))
    self._replace('logic', node, f'({f" {other} ".join(texts)})')
    for k in range(len(texts)):
      rest = texts[:k] + texts[k + 1:]
      self._replace('condition dropped', node,
                    f'({f" {joined} ".join(rest)})')

  def _of_if(self, node: ast.If):
    if not node.orelse and all(isinstance(part, ast.Raise)
                               for part in node.body):
      self._replace('check dropped', node.test, 'False')
    elif not isinstance(node.test, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
      self._replace('condition', node.test, f'not ({self._text(node.test)})')

  def _of_ifexp(self, node: ast.IfExp):
    for part in (node.body, node.orelse):
      self._replace('branch', node, f'({self._text(part)})')

  def _of_expr(self, node: ast.Expr):
    if isinstance(node.value, ast.Call) and (
        _name(node.value.func) not in _TEXT_CALLS):
      self._replace('statement dropped', node, 'None')

  def _of_attribute(self, node: ast.Attribute):
    if node.attr == 'inf':
      self._replace('infinity', node, f'(-{self._text(node)})')

  def _of_call(self, node: ast.Call):
    name = _name(node.func)
    plain = [part for part in node.args if not isinstance(part, ast.Starred)]
    other = _other_name(name, self._optional.names)
    if other:
      end = self._span(node.func)[1]
      self._add('function', end - len(name), end, other)
    if name in _DROPPED and len(plain) == len(node.args) >= 1:
      self._replace('call dropped', node, f'({self._text(node.args[0])})')
    if len(plain) == len(node.args) and name not in _SYMMETRIC:
      for first, second in zip(plain, plain[1:]):
        self._swap(first, second)
    for keyword in node.keywords:
      if keyword.arg and ((name, keyword.arg) in self._optional.keywords
                          or _root(node.func) in _LIBRARIES):
        self._drop(keyword)

  def _swap(self, first: ast.expr, second: ast.expr):
    """Adds the mutant that swaps two neighbouring arguments."""
    if {self._text(first), self._text(second)} & {'key', 'np.inf', 'None'}:
      return
    start, middle = self._span(first)
    after, end = self._span(second)
    self._add('arguments swapped', start, end, self._text(second)
              + self._source[middle:after].decode() + self._text(first))

  def _drop(self, keyword: ast.keyword):
    """Adds the mutant without a keyword argument."""
    start, end = self._span(keyword)
    comma = re.match(rb'\s*,\s*', self._source[end:])
    if comma:
      end += comma.end()
    else:
      before = re.search(rb',\s*$', self._source[:start])
      start = before.start() if before else start
    self._add('argument dropped', start, end, '')


def _name(function: ast.expr) -> str:
  """Returns the last name of a called expression; '' if it has none."""
  return getattr(function, 'attr', getattr(function, 'id', ''))


def _root(function: ast.expr) -> str:
  """Returns the first name of a called expression; '' if it has none."""
  while isinstance(function, ast.Attribute):
    function = function.value
  return getattr(function, 'id', '')


def _other_name(name: str, names: Set[str]) -> str | None:
  """Returns the counterpart of a function, such as min of max; else None."""
  if name in _SWAPPED and name not in ('upper', 'lower', 'up', 'down'):
    return _SWAPPED[name]
  for part in re.findall(r'[a-z]+', name):
    if part in _SWAPPED:
      other = re.sub(rf'(?<![a-z]){part}(?![a-z])', _SWAPPED[part], name)
      if other in names:
        return other
  return None


def find(file: str, source: bytes, optional: Optional) -> list[Mutant]:
  """Returns the mutants of a source; a few may be invalid Python.

  Parts that do not affect results are not mutated: docstrings and other
  strings, error messages, annotations, decorators, imports, and functions that
  only describe.

  Args:
    file: path of the source, stored in the mutants.
    source: content of the source.
    optional: arguments that calls may leave out.
  """
  finder = _Finder(file, source, optional)
  finder.walk(ast.parse(source))
  return finder.mutants
