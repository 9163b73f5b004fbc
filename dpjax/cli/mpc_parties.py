"""Processes of a multi-party study, and the code that each of them runs.

Nothing here imports JAX, so servers start in a fraction of a second.
"""

from collections.abc import Callable, Sequence
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from typing import Any, cast, IO

from dpjax.mpc import packing
from dpjax.mpc.parties import enrolment
from dpjax.mpc.parties import owners
from dpjax.mpc.parties import server
from dpjax.mpc.parties import setup
from dpjax.mpc.parties.agreement import Agreement
from dpjax.mpc.parties.channel import Fault
from dpjax.mpc.parties.listening import Listener
from dpjax.mpc.parties.parameters import Parameters
from dpjax.report import files

NUM_FAULTY = 5
"""Number of owners whose messages a faulty relay changes."""

FAULTS = {
    'kill_server': 'the last server is killed when the owners are done',
    'kill_owners': 'the first relay is killed in the middle of its owners',
    'parameters': 'the last server was given another epsilon',
    'repeat': 'a relay sends the messages of five owners twice',
    'truncate': 'a relay cuts the last byte off the messages of five owners',
    'flip': 'a relay changes a bit in the messages of five owners',
    'forge': 'a relay sends messages of five owners in the name of others'}


def change(fault: str) -> owners.Change | None:
  """Returns how a faulty relay changes its first owners' entries, or None."""
  head, named = enrolment.ENTRY_BYTES, enrolment.entry
  changes = {
      'repeat': lambda owner, entry: 2 * entry,
      'truncate': lambda owner, entry: named(owner, entry[head:-1]),
      'flip': lambda owner, entry: entry[:-1] + bytes([entry[-1] ^ 1]),
      'forge': lambda owner, entry: named(owner + NUM_FAULTY, entry[head:])}
  if fault not in changes:
    return None
  return lambda owner, entry: (
      changes[fault](owner, entry) if owner < NUM_FAULTY else entry)


def serve(study: pathlib.Path, index: int, timeout: float,
          epsilon: float | None = None) -> int:
  """Runs a server until a signal stops it or its parent process ends.

  Args:
    study: folder of the study.
    index: number of the server.
    timeout: seconds after which a silent party is at fault.
    epsilon: another epsilon than that of the study, to demonstrate a fault.
  """
  parameters = setup.read(study)
  if epsilon is not None:
    parameters = parameters.replaced(epsilon=epsilon)
  run_until_stopped(server.Server(
      study / parameters.servers[index], study / 'addresses', index, parameters,
      timeout=timeout))
  return 0


def run_until_stopped(this_server: Listener) -> None:
  """Runs a server until a signal stops it or its parent process ends."""
  stop = threading.Event()
  for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: stop.set())
  this_server.start()
  parent = os.getppid()
  # If the parent process is killed, nobody would stop the server.
  while not stop.wait(1.0) and os.getppid() == parent:
    pass
  this_server.stop()


def relay(study: pathlib.Path, name: str, timeout: float, fault: str) -> int:
  """Sends for the owners of a relay, once; writes a report to its folder."""
  public, folder = setup.read(study), study / name
  marker = folder / 'started'
  if marker.exists():
    raise ValueError(f'{name} has sent before: new shares would not match '
                     'those that servers have')
  # Marked first, so that a crash does not lead to second shares.
  marker.touch()
  secrets = setup.owners(study, name)
  report = owners.send(
      secrets['bins'], list(secrets['tokens']),
      first_owner=int(secrets['owners'][0]), labels=secrets.get('labels'),
      parameters=public, name=name, folder=folder,
      addresses=study / 'addresses', timeout=timeout, change=change(fault))
  files.replace(folder / 'report.json', json.dumps(report).encode())
  return 0


def deal(study: pathlib.Path, timeout: float) -> int:
  """Runs the dealer, once; writes a report to its folder."""
  traffic = owners.deal(setup.read(study), folder=study / 'dealer',
                        addresses=study / 'addresses', timeout=timeout)
  files.replace(study / 'dealer' / 'report.json', json.dumps({
      'traffic': {peer: one.to_json() for peer, one in traffic.items()}
  }).encode())
  return 0


class Processes:
  """The running parties of a study; as a context, it ends them all."""

  def __init__(self, study: pathlib.Path, timeout: float,
               command: str = 'mpc'):
    """Starts with no process.

    Args:
      study: folder of the study.
      timeout: seconds after which a silent party is at fault.
      command: command of `dpjax` that runs a party.
    """
    self.study, self._timeout, self._command = study, timeout, command
    self.running: dict[str, subprocess.Popen[str]] = {}

  def start(self, name: str, role: str, *more: str) -> None:
    """Starts a party with a role and further flags."""
    self.running[name] = subprocess.Popen(
        [sys.executable, '-m', 'dpjax.cli', self._command, f'--role={role}',
         f'--study={self.study}', f'--timeout={self._timeout}', *more],
        stderr=subprocess.PIPE, text=True)

  def start_servers(self, parameters: Agreement, fault: str = '') -> None:
    """Starts all servers and waits until they listen.

    Args:
      parameters: parameters of the study.
      fault: a fault to demonstrate, for studies of a curve.

    Raises:
      Fault: of a server that does not start, with its error message.
    """
    for index, name in enumerate(parameters.servers):
      # An old address would look like a server that listens.
      (self.study / 'addresses' / name).unlink(missing_ok=True)
      wrong = fault == 'parameters' and index == len(parameters.servers) - 1
      self.start(name, 'server', f'--index={index}', *(
          [f'--epsilon={2 * cast(Parameters, parameters).epsilon}'] if wrong
          else []))
    self.until(lambda: all((self.study / 'addresses' / name).exists()
                           for name in parameters.servers),
               parameters.servers)

  def until(self, done: Callable[[], bool], names: Sequence[str]) -> None:
    """Waits for a condition; raises if a party ends first or time is up."""
    deadline = time.monotonic() + self._timeout
    while not done():
      for name in names:
        if self.running[name].poll() is not None:
          raise Fault(name, self._last_words(name))
      if time.monotonic() > deadline:
        raise Fault(' or '.join(names), 'has not started in time')
      time.sleep(.02)

  def _last_words(self, name: str) -> str:
    """Returns the error message of a party that has ended."""
    said = self._stderr(self.running[name]).read().strip()
    status = self.running[name].returncode
    return said.removeprefix('error: ') or f'ended with status {status}'

  @staticmethod
  def _stderr(process: subprocess.Popen[str]) -> IO[str]:
    """Returns the pipe of a process that `start` has made."""
    assert process.stderr is not None
    return process.stderr

  def kill(self, name: str) -> None:
    """Kills a party without notice, like a crash."""
    self.running[name].kill()
    self.running[name].communicate()

  def wait(self, name: str) -> str | None:
    """Waits for a party to end; returns its error, or None."""
    process = self.running.pop(name)
    # The output of a process killed by `kill` has been read already.
    said = ('' if self._stderr(process).closed else
            process.communicate()[1])
    if process.returncode == 0:
      return None
    if process.returncode < 0:
      return f'{name} was killed by signal {-process.returncode}'
    return f'{name}: {said.strip().removeprefix("error: ")}'

  def __enter__(self) -> 'Processes':
    return self

  def __exit__(self, *_: object) -> None:
    # All processes are asked to end before any is waited for.
    for process in self.running.values():
      process.terminate()
    for process in self.running.values():
      try:
        process.communicate(timeout=10)
      except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def report_of(study: pathlib.Path, name: str) -> dict[str, Any]:
  """Returns a party's report; empty if it has written none."""
  try:
    return json.loads((study / name / 'report.json').read_text())
  except (OSError, ValueError):
    return {}


def senders(study: pathlib.Path) -> list[str]:
  """Returns the names of all parties that send to servers: relays, dealer."""
  return [*setup.relays(study), 'dealer']


def until_some_are_there(study: pathlib.Path, parameters: Parameters,
                         timeout: float) -> None:
  """Waits until the first server holds messages of a quarter of the owners."""
  path = study / parameters.servers[0] / 'inbox.log'
  wanted = parameters.num_owners // 4 * (
      enrolment.AROUND_BYTES +
      packing.num_bytes(parameters.build_scheme().bits(0)))
  deadline = time.monotonic() + timeout
  while path.stat().st_size < max(1, wanted):
    if time.monotonic() > deadline:
      raise ValueError('owners have not sent in time: increase --timeout')
    time.sleep(.005)
