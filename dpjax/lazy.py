"""Public names of packages that are imported when they are first used."""

from collections.abc import Callable, Mapping, Sequence
import importlib
import sys
from typing import Any


def attributes(package: str, public: Sequence[str],
               places: Mapping[str, str]) -> Callable[[str], Any]:
  """Returns a package's `__getattr__`, which imports a public name on demand.

  So `import dpjax` is fast, and using a name imports only its module.

  Args:
    package: name of the package.
    public: its `__all__`; a name is a module of the package unless it is in
      `places`.
    places: name -> module of the package that defines it.
  """
  def __getattr__(name: str) -> Any:
    if name not in public:
      raise AttributeError(f'module {package!r} has no attribute {name!r}')
    if name in places:
      module = importlib.import_module(f'{package}.{places[name]}')
      value = getattr(module, name)
    else:
      value = importlib.import_module(f'{package}.{name}')
    setattr(sys.modules[package], name, value)
    return value

  return __getattr__
