"""The folder of a study: keys, certificates, tokens, and what is public.

* `parameters.json`: public.
* `addresses/`: where servers say where they are.
* `server<j>/`: key, certificate, enrolment key; what it has accepted.
* `owners<i>/`: of a relay: key, certificate; bins and tokens of its owners.
* `dealer/`, `client/`: key, certificate.
"""

import pathlib
import shutil

import numpy as np

from dpjax import errors
from dpjax.mpc.parties import certificates
from dpjax.mpc.parties import enrolment
from dpjax.mpc.parties import storage
from dpjax.mpc.parties.parameters import from_bytes, Parameters
from dpjax.report import files


def create(folder: pathlib.Path, parameters: Parameters, bins: np.ndarray,
           labels: np.ndarray | None = None, num_relays: int = 1) -> None:
  """Makes the folder of a study; it must not be there, or be empty.

  Args:
    folder: of the study.
    parameters: of the study.
    bins: of all owners, [n], 0 to N - 1; divided among the relays.
    labels: of all owners, [n] of 0 and 1, if there are two classes.
    num_relays: how many processes play owners.
  """
  errors.check_at_least('num_relays', num_relays, 1)
  errors.check_records(bins.shape, parameters.num_owners)
  if folder.exists() and any(folder.iterdir()):
    raise ValueError(f'{folder} is not empty: a study has a folder of its own')
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
    np.savez(folder / relay / 'owners.npz', owners=part, bins=bins[part],
             tokens=tokens, **(
                 {} if labels is None else {'labels': labels[part]}))
    (folder / relay / 'owners.npz').chmod(0o600)
  files.replace(folder / 'parameters.json', parameters.to_bytes())


def read(folder: pathlib.Path) -> Parameters:
  """The parameters of the study in a folder."""
  path = folder / 'parameters.json'
  if not path.exists():
    raise ValueError(f'{folder} holds no study')
  return from_bytes(path.read_bytes())


def relays(folder: pathlib.Path) -> list[str]:
  """Names of the processes that play owners."""
  return sorted((path.name for path in folder.glob('owners*')),
                key=lambda name: int(name.removeprefix('owners')))


def owners(folder: pathlib.Path, relay: str) -> dict[str, np.ndarray]:
  """What a relay's owners have: `owners`, `bins`, `tokens`, maybe `labels`.

  Tokens are [servers, owners, 32].
  """
  with np.load(folder / relay / 'owners.npz') as found:
    return dict(found)


def remove(folder: pathlib.Path) -> None:
  """Removes the folder of a study, with its secrets."""
  read(folder)  # refuses another folder
  shutil.rmtree(folder)
