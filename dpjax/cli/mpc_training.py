"""Private training on secure sums of gradients, with owners as processes.

In each round the client publishes the parameters of a network. Every owner
applies the public weight constraint to them, computes the plain gradient of its
own record, and sends it secret-shared to servers that open only the noisy sum
(`dpjax.mpc.vector_sums`). The client makes a gradient step.

The norm of each gradient is bounded through the Lipschitz constants of the
network, so nobody clips. DP-SGD is possible in this setting too: an owner with
one record can clip its own gradient before it sends it. What differs is that
here nobody must run code for each record: an owner with many records needs one
ordinary backward pass, whose result is bounded by its number of records times
the bound of one. And the bound is a function of public parameters, which every
party can verify; owners here do. An owner that does not follow the protocol can
send a longer vector in both cases, because servers cannot see it.
"""

import dataclasses
import json
import math
import pathlib
import time
from typing import Any

import numpy as np

from dpjax.cli import mpc_parties
from dpjax.cli.mpc_task import Task
from dpjax.mpc.parties import setup
from dpjax.mpc.parties import sum_client
from dpjax.mpc.parties import sum_owners
from dpjax.mpc.parties import sum_parameters
from dpjax.mpc.parties.sum_parameters import SumParameters
from dpjax.report import files


def read_message(message: bytes, length: int) -> np.ndarray:
  """Returns the parameters [d] in a round's message; ValueError if not d."""
  if len(message) != 4 * length:
    raise ValueError(f'a message of {len(message)} bytes does not hold '
                     f'{length} parameters')
  return np.frombuffer(message, '<f4')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trained:
  """The result of a run.

  Attributes:
    flat: released parameters, float32 [d].
    took_part: number of owners in the sum of each round.
    seconds: wall time of each round.
    owner_bytes: by server, payload bytes that an owner sends in a round: its
      sealed message with number and mark.
    wire_bytes: the same with everything that relays send, such as frames, TLS
      and requests, divided by owners and rounds.
    reports: reports of all servers and relays by name.
    faults: errors of relays that did not finish; their owners dropped out.
  """
  flat: np.ndarray
  took_part: tuple[int, ...]
  seconds: tuple[float, ...]
  owner_bytes: dict[str, float]
  wire_bytes: dict[str, float]
  reports: dict[str, Any]
  faults: tuple[str, ...]


def run(study: pathlib.Path, task: Task, parameters: SumParameters,
        x: np.ndarray, y: np.ndarray, *, learning_rate: float, num_relays: int,
        timeout: float, patience: float) -> Trained:
  """Creates a study, runs all parties as processes, and trains.

  Args:
    study: new folder of the study.
    task: what is trained.
    parameters: parameters of the sums; the bound is `task.gradient_bound`.
    x: records of the owners [n, p], one each, of l2 norm at most 1.
    y: their classes [n].
    learning_rate: step size, for the mean of the gradients.
    num_relays: number of processes that the owners are divided among.
    timeout: seconds after which a silent party is at fault.
    patience: seconds that a round waits for missing owners; below `timeout`.

  Raises:
    ValueError: if task and parameters do not match.
    Fault: if a party prevents a round.
  """
  if parameters.bound < task.gradient_bound or parameters.length != len(
      task.start):
    raise ValueError(
        f'the task has {len(task.start)} parameters and gradient bound '
        f'{task.gradient_bound}, but sums are for length {parameters.length} '
        f'and bound {parameters.bound}')
  setup.create_parties(study, parameters, {'x': x, 'y': y}, num_relays)
  files.replace(study / 'task.json', task.to_bytes())
  with mpc_parties.Processes(study, timeout, 'mpc_train') as running:
    running.start_servers(parameters)
    relays = setup.relays(study)
    for index, name in enumerate(relays):
      running.start(name, 'relay', f'--index={index}')
    running.until(lambda: all((study / name / 'ready').exists()
                              for name in relays), relays)
    with sum_client.SumClient(
        parameters, folder=study / 'client', addresses=study / 'addresses',
        timeout=10 * timeout) as client:
      flat, took_part, seconds = train(task, parameters, client,
                                       learning_rate=learning_rate,
                                       patience=patience)
      client.finish()
    faults = [fault for fault in map(running.wait, relays) if fault]
  # Servers have written their reports by now.
  return _trained(study, parameters, flat=flat, took_part=tuple(took_part),
                  seconds=tuple(seconds), faults=tuple(faults))


def train(task: Task, parameters: SumParameters, client: sum_client.SumClient,
          *, learning_rate: float, patience: float
          ) -> tuple[np.ndarray, list[int], list[float]]:
  """Opens all rounds of a study and makes a gradient step after each.

  Args as for `run`, and `client`, which is connected to the servers.

  Returns:
    Parameters [d], and for each round the number of owners and the seconds.
  """
  flat, took_part, seconds = task.start, [], []
  for number in range(parameters.num_rounds):
    start = time.monotonic()
    client.open(number, flat.astype('<f4').tobytes())
    answer = client.ask(number, patience=patience)
    # Gradients are those at the constrained parameters.
    flat = (task.constrain(flat) - learning_rate * answer.mean
            ).astype(np.float32)
    took_part.append(int(answer.took_part.sum()))
    seconds.append(time.monotonic() - start)
  return task.constrain(flat), took_part, seconds


def _trained(study: pathlib.Path, parameters: SumParameters,
             **results: Any) -> Trained:
  """Returns the result, with bytes from the reports of the relays."""
  relays = setup.relays(study)
  reports = {name: mpc_parties.report_of(study, name)
             for name in (*parameters.servers, *relays)}
  sent = {peer: [reports[name]['traffic'][peer] for name in relays
                 if reports[name]] for peer in parameters.servers}
  messages = sum(reports[name]['owners'] * reports[name]['rounds']
                 for name in relays if reports[name])
  uses = max(1, messages)
  return Trained(
      **results, reports=reports, owner_bytes={
          peer: sum(one['payload_sent'].get('owners', 0) for one in parts
                    ) / uses for peer, parts in sent.items()},
      wire_bytes={peer: sum(one['wire_sent'] for one in parts) / uses
                  for peer, parts in sent.items()})


def relay(study: pathlib.Path, name: str, timeout: float) -> int:
  """Takes part in all rounds for the owners of a relay; writes a report."""
  parameters = sum_parameters.from_bytes(setup.parameters_bytes(study))
  task = Task(**json.loads((study / 'task.json').read_bytes()))
  held = setup.owners(study, name)
  x, y = held['x'], held['y']

  def vectors(number: int, message: bytes) -> np.ndarray:
    del number
    return task.gradients(read_message(message, parameters.length), x, y)

  # Compiled before the first round, which would otherwise wait for it.
  task.gradients(task.start, x, y)
  (study / name / 'ready').touch()
  report = sum_owners.take_part(
      vectors, list(held['tokens']), first_owner=int(held['owners'][0]),
      parameters=parameters, name=name, folder=study / name,
      addresses=study / 'addresses', timeout=timeout)
  files.replace(study / name / 'report.json', json.dumps(report).encode())
  return 0


def parameters_for(task: Task, *, session: str, num_owners: int,
                   num_servers: int, num_rounds: int, epsilon: float,
                   delta: float, granularity_bits: int = 16,
                   min_owners: int = 0) -> SumParameters:
  """Returns the parameters of a study that trains with (epsilon, delta)-DP.

  Noise is calibrated for `num_rounds` sums and the replace-one relation between
  owners; k is the least number of bits that noisy sums fit in.

  Args:
    task: what is trained.
    session: 32 hexadecimal digits, drawn anew for each study.
    num_owners: number of enrolled owners, public.
    num_servers: m; all but one may collude.
    num_rounds: T.
    epsilon: of the whole run, positive.
    delta: in [1e-12, 1).
    granularity_bits: b; gradients are rounded to multiples of S / 2^b.
    min_owners: fewest owners of a round.
  """
  from dpjax.mpc import vector_sums
  variance = vector_sums.calibrated_variance(
      epsilon=epsilon, delta=delta, num_sums=num_rounds,
      granularity_bits=granularity_bits)
  return SumParameters(
      session=session, num_servers=num_servers, num_owners=num_owners,
      min_owners=min_owners, length=len(task.start),
      bound=math.nextafter(task.gradient_bound, math.inf),
      granularity_bits=granularity_bits, noise_variance=variance,
      num_rounds=num_rounds, value_bits=vector_sums.value_bits(
          num_owners, num_servers=num_servers, noise_variance=variance,
          granularity_bits=granularity_bits))
