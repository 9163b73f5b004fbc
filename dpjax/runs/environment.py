"""Device, code commit and package versions that measured numbers depend on."""

from collections.abc import Iterable
from importlib import metadata
import pathlib
import platform
import subprocess
from typing import NamedTuple

# The repository, if dpjax runs from a checkout.
ROOT = pathlib.Path(__file__).resolve().parents[2]
UNKNOWN = 'unknown'

_PACKAGES = ('dpjax', 'jax', 'jaxlib', 'numpy', 'scipy', 'optax', 'flax',
             'dp_accounting')


class Environment(NamedTuple):
  """The environment in which result rows are computed.

  Attributes:
    device: hardware, e.g. 'cpu'.
    jax: version of JAX.
    commit: commit of the code, with '-dirty' if the code changed since.
    versions: package name -> version; also of 'python'.
  """
  device: str
  jax: str
  commit: str
  versions: dict[str, str]


def _version(package: str) -> str:
  """Returns the version of an installed package, else 'unknown'."""
  try:
    return metadata.version(package)
  except metadata.PackageNotFoundError:
    return UNKNOWN


def _git(root: pathlib.Path, *arguments: str) -> str:
  """Returns the output of a git command; raises if it fails."""
  return subprocess.run(('git', '-C', root, *arguments), check=True,
                        capture_output=True, text=True).stdout.strip()


def commit(root: pathlib.Path = ROOT) -> str:
  """Returns the commit of the code, or 'unknown' outside its repository.

  Ends in '-dirty' if tracked files changed since. Changes to committed result
  files do not count.
  """
  try:
    # An installed copy may lie inside the repository of another project.
    if pathlib.Path(_git(root, 'rev-parse', '--show-toplevel')) != root:
      return UNKNOWN
    head = _git(root, 'rev-parse', '--short=10', 'HEAD')
    # A sweep writes results while it runs; the code stays the same.
    changed = _git(root, 'status', '--porcelain', '--untracked-files=no',
                   '--', '.', ':(exclude)experiments/*/results/*')
  except (OSError, subprocess.CalledProcessError):
    return UNKNOWN
  return f'{head}-dirty' if changed else head


def history(root: pathlib.Path = ROOT) -> frozenset[str] | None:
  """Returns the full hashes of HEAD and all of its ancestors.

  Returns None if they are unknown: outside a repository or in a shallow clone.
  """
  try:
    if (pathlib.Path(_git(root, 'rev-parse', '--show-toplevel')) != root or
        _git(root, 'rev-parse', '--is-shallow-repository') != 'false'):
      return None
    return frozenset(_git(root, 'rev-list', 'HEAD').split())
  except (OSError, subprocess.CalledProcessError):
    return None


def current(num_devices: int = 1, optional: Iterable[str] = ()) -> Environment:
  """Returns the environment of this process.

  Args:
    num_devices: number of devices that share the work, for `device`.
    optional: further packages, which are named only if they are installed.
  """
  import jax  # Imported here: reading and reporting rows needs no JAX.
  versions = {package: _version(package) for package in _PACKAGES}
  versions |= {package: version for package in optional
               if (version := _version(package)) != UNKNOWN}
  versions['python'] = platform.python_version()
  kind = jax.devices()[0].device_kind
  return Environment(
      device=kind if num_devices == 1 else f'{num_devices} x {kind}',
      jax=versions['jax'], commit=commit(), versions=versions)
