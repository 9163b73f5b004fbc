"""The folder of a study: parameters, keys, certificates and tokens.

* `parameters.json`: the public parameters.
* `addresses/`: host and port of each running server.
* `server<j>/`: key, certificate, enrolment key; later accepted messages, noise.
* `owners<i>/`: a relay's key and certificate; bins and tokens of its owners.
* `dealer/`, `client/`: key and certificate.
"""

import pathlib
import shutil

import numpy as np

from dpjax import errors
from dpjax.mpc.parties import certificates
from dpjax.mpc.parties import enrolment
from dpjax.mpc.parties import storage
from dpjax.mpc.parties.parameters import from_bytes
from dpjax.mpc.parties.parameters import Parameters
from dpjax.report import files


def create(folder: pathlib.Path, parameters: Parameters, bins: np.ndarray,
           labels: np.ndarray | None = None, num_relays: int = 1) -> None:
  """Creates the folder of a study.

  Args:
    folder: the new folder; it must be missing or empty.
    parameters: parameters of the study.
    bins: secret bins of all owners [n], 0 to N - 1; divided among the relays.
    labels: secret labels of all owners [n], 0 or 1, if there are two classes.
    num_relays: number of processes that send for owners.

  Raises:
    ValueError: if the folder is not empty or the bins do not match.
  """
  errors.check_at_least('num_relays', num_relays, 1)
  errors.check_records(bins.shape, parameters.num_owners)
  if folder.exists() and any(folder.iterdir()):
    raise ValueError(f'{folder} is not empty: a study needs a new folder')
  folder.mkdir(mode=0o700, parents=True, exist_ok=True)
  relays = [f'owners{i}' for i in range(num_relays)]
  names = [*parameters.servers, *relays, 'dealer', 'client']
  certificates.issue({name: folder / name for name in names},
                     parameters.session)
  keys = [storage.enrolment_key(folder / name) for name in parameters.servers]
  owners = np.array_split(np.arange(parameters.num_owners), num_relays)
  for relay, part in zip(relays, owners, strict=True):
    tokens = np.array([[np.frombuffer(enrolment.token(key, owner), np.uint8)
                        for owner in part.tolist()] for key in keys],
                      np.uint8).reshape(len(keys), len(part), -1)
    arrays = {'owners': part, 'bins': bins[part], 'tokens': tokens}
    if labels is not None:
      arrays['labels'] = labels[part]
    # The stub takes arrays for the option `allow_pickle`.
    # The folder has mode 0700, so nobody else can open the file.
    np.savez(folder / relay / 'owners.npz', **arrays)  # type: ignore[arg-type]
    (folder / relay / 'owners.npz').chmod(0o600)
  files.replace(folder / 'parameters.json', parameters.to_bytes())


def read(folder: pathlib.Path) -> Parameters:
  """Returns the parameters of the study in a folder; ValueError if none."""
  path = folder / 'parameters.json'
  if not path.exists():
    raise ValueError(f'{folder} holds no study: parameters.json is missing')
  return from_bytes(path.read_bytes())


def relays(folder: pathlib.Path) -> list[str]:
  """Returns the names of the relays, `owners0`, `owners1`, ..."""
  return sorted((path.name for path in folder.glob('owners*')),
                key=lambda name: int(name.removeprefix('owners')))


def owners(folder: pathlib.Path, relay: str) -> dict[str, np.ndarray]:
  """Returns the secrets of a relay's owners.

  Returns:
    `owners` [n], their numbers; `bins` [n]; `tokens` uint8 [servers, n, 32];
    and `labels` [n] if there are two classes.
  """
  with np.load(folder / relay / 'owners.npz') as archive:
    return dict(archive)


def remove(folder: pathlib.Path) -> None:
  """Removes the folder of a study with all its secrets."""
  read(folder)  # raises if the folder holds no study
  shutil.rmtree(folder)
