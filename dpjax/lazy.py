"""Public names of packages that are imported when they are first used."""

from collections.abc import Callable, Mapping, Sequence
import importlib
import sys
from typing import Any


def attributes(package: str, public: Sequence[str], places: Mapping[str, str]
               ) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
  """Returns `__getattr__` and `__dir__` of a package: public names on demand.

  So `import dpjax` takes no time and a name costs what its module costs; `dir`,
  `help` and tab completion list the public names before they are imported.

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

  def __dir__() -> list[str]:
    special = (name for name in vars(sys.modules[package])
               if name.startswith('__'))
    return sorted({*public, *special})

  return __getattr__, __dir__
