"""What a number may depend on besides its setting: device and versions."""

from importlib import metadata
import pathlib
import platform
import subprocess
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
UNKNOWN = 'unknown'

_PACKAGES = ('dpjax', 'jax', 'jaxlib', 'numpy', 'scipy', 'optax', 'flax',
             'dp_accounting')


class Environment(NamedTuple):
  """Where rows are made.

  Attributes:
    device: hardware, e.g. 'cpu'.
    jax: version of JAX.
    commit: of the code, '-dirty' when changed since.
    versions: name -> version.
  """
  device: str
  jax: str
  commit: str
  versions: dict[str, str]


def _version(package: str) -> str:
  try:
    return metadata.version(package)
  except metadata.PackageNotFoundError:
    return UNKNOWN


def _git(root: pathlib.Path, *arguments: str) -> str:
  return subprocess.run(('git', '-C', root, *arguments), check=True,
                        capture_output=True, text=True).stdout.strip()


def commit(root: pathlib.Path = ROOT) -> str:
  """Returns the commit of the code, 'unknown' outside its repository.

  A change of kept results is no change of the code.
  """
  try:
    # An installed copy may lie inside the repository of something else.
    if pathlib.Path(_git(root, 'rev-parse', '--show-toplevel')) != root:
      return UNKNOWN
    head = _git(root, 'rev-parse', '--short=10', 'HEAD')
    changed = _git(root, 'status', '--porcelain', '--untracked-files=no',
                   '--', '.', ':(exclude)experiments/*/results/*')
  except (OSError, subprocess.CalledProcessError):
    return UNKNOWN
  return f'{head}-dirty' if changed else head


def history(root: pathlib.Path = ROOT) -> frozenset[str] | None:
  """Returns the commits that lead to the present one, in full.

  None where that cannot be known: outside a repository, or in a shallow clone.
  """
  try:
    if (pathlib.Path(_git(root, 'rev-parse', '--show-toplevel')) != root or
        _git(root, 'rev-parse', '--is-shallow-repository') != 'false'):
      return None
    return frozenset(_git(root, 'rev-list', 'HEAD').split())
  except (OSError, subprocess.CalledProcessError):
    return None


def current(num_devices: int = 1) -> Environment:
  """Returns the environment of this process, or of all that share a mesh."""
  import jax  # here, so that reading and reporting rows does without
  versions = {package: _version(package) for package in _PACKAGES}
  versions['python'] = platform.python_version()
  kind = jax.devices()[0].device_kind
  return Environment(
      device=kind if num_devices == 1 else f'{num_devices} x {kind}',
      jax=versions['jax'], commit=commit(), versions=versions)
