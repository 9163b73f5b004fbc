"""Stores trained networks and unfinished trainings, to resume killed runs."""

import io
import pathlib
import time
from typing import Any

import jax
import numpy as np

from dpjax.report import files
from dpjax.typing import PyTree


class Store:
  """Stores trees of arrays by name, in a folder or in memory.

  Files are replaced atomically. Each holds the text `belongs_to`, and a file
  with another text is refused.

  Args:
    folder: the folder; None to store in memory.
    belongs_to: text that identifies the study, such as its whole profile.
    every_seconds: least time between two saves of unfinished states.
  """

  def __init__(self, folder: pathlib.Path | None, belongs_to: str, *,
               every_seconds: float = 30.0):
    self._folder, self._belongs_to = folder, belongs_to
    self._every, self._last = every_seconds, time.monotonic()
    self._kept = {}

  def save(self, name: str, value: PyTree) -> None:
    """Stores the leaves of a tree."""
    if self._folder is None:
      self._kept[name] = jax.tree.map(np.asarray, value)
      return
    self._folder.mkdir(parents=True, exist_ok=True)
    leaves = {f'{number:03d}': np.asarray(leaf)
              for number, leaf in enumerate(jax.tree.leaves(value))}
    buffer = io.BytesIO()
    np.savez(buffer, belongs_to=np.asarray(self._belongs_to), **leaves)
    files.replace(self._folder / f'{name}.npz', buffer.getvalue())
    self._last = time.monotonic()

  def save_now_and_then(self, name: str, value: PyTree) -> None:
    """Stores a tree on disk if `every_seconds` passed since the last save."""
    if (self._folder is not None and
        time.monotonic() - self._last >= self._every):
      self.save(name, value)

  def load(self, name: str, like: PyTree) -> Any:
    """Returns the stored tree, or None.

    Args:
      name: name given to `save`.
      like: a tree of the same structure; its leaves are not used.

    Raises:
      ValueError: the file belongs to another study or structure.
    """
    if self._folder is None:
      return self._kept.get(name)
    path = self._folder / f'{name}.npz'
    if not path.exists():
      return None
    with np.load(path, allow_pickle=False) as arrays:
      if str(arrays['belongs_to']) != self._belongs_to:
        raise ValueError(f'{path} belongs to another study; use another '
                         '--output_dir, or remove it')
      leaves = [arrays[f'{number:03d}']
                for number in range(len(arrays.files) - 1)]
    structure = jax.tree.structure(like)
    if structure.num_leaves != len(leaves):
      raise ValueError(f'{path} has {len(leaves)} arrays, expected '
                       f'{structure.num_leaves}')
    return jax.tree.unflatten(structure, leaves)

  def remove(self, name: str) -> None:
    """Removes a stored tree, if there is one."""
    if self._folder is not None:
      (self._folder / f'{name}.npz').unlink(missing_ok=True)
