"""The folder of a study: parameters, keys, certificates and tokens.

* `parameters.json`: the public parameters.
* `addresses/`: host and port of each running server.
* `server<j>/`: key, certificate, enrolment key; later accepted messages, noise.
* `owners<i>/`: a relay's key and certificate; records (bins of a curve) and
  tokens of its owners.
* `dealer/` (of a curve), `client/`: key and certificate.
"""

from collections.abc import Mapping, Sequence
import pathlib
import shutil

import numpy as np

from dpjax import errors
from dpjax.mpc.parties import certificates
from dpjax.mpc.parties import enrolment
from dpjax.mpc.parties import storage
from dpjax.mpc.parties.agreement import Agreement
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
  records = {'bins': bins} | ({} if labels is None else {'labels': labels})
  create_parties(folder, parameters, records, num_relays,
                 others=('dealer', 'client'))


def create_parties(folder: pathlib.Path, parameters: Agreement,
                   records: Mapping[str, np.ndarray], num_relays: int = 1,
                   others: Sequence[str] = ('client',)) -> None:
  """Creates the folder of a study of any kind.

  Args:
    folder: the new folder; it must be missing or empty.
    parameters: parameters of the study.
    records: secret records of all owners by name, [n, ...] each; divided among
      the relays.
    num_relays: number of processes that send for owners.
    others: names of the parties that are neither servers nor relays.

  Raises:
    ValueError: if the folder is not empty or the records do not match.
  """
  errors.check_at_least('num_relays', num_relays, 1)
  for values in records.values():
    errors.check_records(values.shape[:1], parameters.num_owners)
  if folder.exists() and any(folder.iterdir()):
    raise ValueError(f'{folder} is not empty: a study needs a new folder')
  folder.mkdir(mode=0o700, parents=True, exist_ok=True)
  relays = [f'owners{i}' for i in range(num_relays)]
  names = [*parameters.servers, *relays, *others]
  certificates.issue({name: folder / name for name in names},
                     parameters.session)
  keys = [storage.enrolment_key(folder / name) for name in parameters.servers]
  owners = np.array_split(np.arange(parameters.num_owners), num_relays)
  for relay, part in zip(relays, owners, strict=True):
    tokens = np.array([[np.frombuffer(enrolment.token(key, owner), np.uint8)
                        for owner in part.tolist()] for key in keys],
                      np.uint8).reshape(len(keys), len(part), -1)
    arrays = {'owners': part, 'tokens': tokens} | {
        name: values[part] for name, values in records.items()}
    # The stub takes arrays for the option `allow_pickle`.
    # The folder has mode 0700, so nobody else can open the file.
    np.savez(folder / relay / 'owners.npz', **arrays)  # type: ignore[arg-type]
    (folder / relay / 'owners.npz').chmod(0o600)
  files.replace(folder / 'parameters.json', parameters.to_bytes())


def read(folder: pathlib.Path) -> Parameters:
  """Returns the parameters of the study in a folder; ValueError if none."""
  return from_bytes(parameters_bytes(folder))


def parameters_bytes(folder: pathlib.Path) -> bytes:
  """Returns the JSON of the parameters of a study; ValueError if none."""
  path = folder / 'parameters.json'
  if not path.exists():
    raise ValueError(f'{folder} holds no study: parameters.json is missing')
  return path.read_bytes()


def relays(folder: pathlib.Path) -> list[str]:
  """Returns the names of the relays, `owners0`, `owners1`, ..."""
  return sorted((path.name for path in folder.glob('owners*')),
                key=lambda name: int(name.removeprefix('owners')))


def owners(folder: pathlib.Path, relay: str) -> dict[str, np.ndarray]:
  """Returns the secrets of a relay's owners.

  Returns:
    `owners` [n], their numbers; `tokens` uint8 [servers, n, 32]; and the
    records, for a curve `bins` [n] and, with two classes, `labels` [n].
  """
  with np.load(folder / relay / 'owners.npz') as archive:
    return dict(archive)


def remove(folder: pathlib.Path) -> None:
  """Removes the folder of a study with all its secrets."""
  read(folder)  # raises if the folder holds no study
  shutil.rmtree(folder)
