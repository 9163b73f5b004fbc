"""Processes of a study of several parties, and what they do in them.

Nothing here imports JAX: servers start in a fraction of a second.
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

from dpjax.mpc import packing
from dpjax.mpc.parties import enrolment
from dpjax.mpc.parties import owners
from dpjax.mpc.parties import server
from dpjax.mpc.parties import setup
from dpjax.mpc.parties.channel import Fault
from dpjax.mpc.parties.parameters import Parameters
from dpjax.report import files

_ROOT = pathlib.Path(__file__).resolve().parents[1]

NUM_FAULTY = 5
"""Owners whose messages a relay spoils, in demonstrations."""

FAULTS = {
    'kill_server': 'the last server is killed when the owners are done',
    'kill_owners': 'the first relay is killed in the middle of its owners',
    'parameters': 'the last server was told another epsilon',
    'repeat': 'a relay sends the messages of five owners twice',
    'truncate': 'a relay cuts the last byte off the messages of five owners',
    'flip': 'a relay changes a bit in the messages of five owners',
    'forge': 'a relay sends messages of five owners in the name of others'}


def change(fault: str) -> owners.Change | None:
  """What a relay does to entries of its first owners, by name."""
  head = enrolment.ENTRY_BYTES

  def named(owner, sealed):
    return enrolment.entry(owner, sealed)

  made = {
      'repeat': lambda owner, entry: 2 * entry,
      'truncate': lambda owner, entry: named(owner, entry[head:-1]),
      'flip': lambda owner, entry: entry[:-1] + bytes([entry[-1] ^ 1]),
      'forge': lambda owner, entry: named(owner + NUM_FAULTY, entry[head:])}
  if fault not in made:
    return None
  return lambda owner, entry: (
      made[fault](owner, entry) if owner < NUM_FAULTY else entry)


def serve(study: pathlib.Path, index: int, timeout: float,
          epsilon: float | None = None) -> int:
  """Is a server until it is told to stop; another epsilon is a fault."""
  told = setup.read(study)
  if epsilon is not None:
    told = told.replaced(epsilon=epsilon)
  stop = threading.Event()
  for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: stop.set())
  one = server.Server(study / told.servers[index], study / 'addresses', index,
                      told, timeout=timeout)
  one.start()
  parent = os.getppid()
  # Who started it may be killed; nobody would stop it then.
  while not stop.wait(1.0) and os.getppid() == parent:
    pass
  one.stop()
  return 0


def relay(study: pathlib.Path, name: str, timeout: float, fault: str) -> int:
  """Plays the owners of a relay, once; what came of it goes to its folder."""
  told, folder = setup.read(study), study / name
  marker = folder / 'started'
  if marker.exists():
    raise ValueError(f'{name} has sent before: new shares would not fit to '
                     'those that servers have')
  marker.touch()
  held = setup.owners(study, name)
  report = owners.send(
      held['bins'], list(held['tokens']), first_owner=int(held['owners'][0]),
      labels=held.get('labels'), parameters=told, name=name, folder=folder,
      addresses=study / 'addresses', timeout=timeout, change=change(fault))
  files.replace(folder / 'report.json', json.dumps(report).encode())
  return 0


def deal(study: pathlib.Path, timeout: float) -> int:
  """Is the dealer, once."""
  traffic = owners.deal(setup.read(study), folder=study / 'dealer',
                        addresses=study / 'addresses', timeout=timeout)
  files.replace(study / 'dealer' / 'report.json', json.dumps({
      'traffic': {peer: one.to_json() for peer, one in traffic.items()}
  }).encode())
  return 0


class Processes:
  """The parties of a study that run; none is left behind."""

  def __init__(self, study: pathlib.Path, timeout: float):
    """None yet."""
    self.study, self._timeout = study, timeout
    self.running: dict[str, subprocess.Popen] = {}

  def start(self, name: str, role: str, *more: str) -> None:
    """Starts a party."""
    self.running[name] = subprocess.Popen(
        [sys.executable, '-m', 'launch.mpc', f'--role={role}',
         f'--study={self.study}', f'--timeout={self._timeout}', *more],
        stderr=subprocess.PIPE, text=True, cwd=_ROOT)

  def start_servers(self, parameters: Parameters, fault: str = '') -> None:
    """Starts all servers, and waits until they listen.

    Raises:
      Fault: of a server that does not start, with what it says.
    """
    for index, name in enumerate(parameters.servers):
      (self.study / 'addresses' / name).unlink(missing_ok=True)
      wrong = fault == 'parameters' and index == len(parameters.servers) - 1
      self.start(name, 'server', f'--index={index}',
                 *([f'--epsilon={2 * parameters.epsilon}'] if wrong else []))
    self._until(lambda: all((self.study / 'addresses' / name).exists()
                            for name in parameters.servers),
                parameters.servers)

  def _until(self, done: Callable[[], bool], names: Sequence[str]) -> None:
    deadline = time.monotonic() + self._timeout
    while not done():
      for name in names:
        if self.running[name].poll() is not None:
          raise Fault(name, self._last_words(name))
      if time.monotonic() > deadline:
        raise Fault(' or '.join(names), 'has not started in time')
      time.sleep(.02)

  def _last_words(self, name: str) -> str:
    said = self.running[name].stderr.read().strip()
    status = self.running[name].returncode
    return said.removeprefix('error: ') or f'ended with status {status}'

  def kill(self, name: str) -> None:
    """Kills a party, as a crash of its machine would."""
    self.running[name].kill()
    self.running[name].communicate()

  def wait(self, name: str) -> str | None:
    """Waits for a party; what was wrong with it, if anything was."""
    process = self.running.pop(name)
    # Of one that was killed here nothing is left to read.
    said = '' if process.stderr.closed else process.communicate()[1]
    if process.returncode == 0:
      return None
    if process.returncode < 0:
      return f'{name} was killed by signal {-process.returncode}'
    return f'{name}: {said.strip().removeprefix("error: ")}'

  def __enter__(self) -> 'Processes':
    return self

  def __exit__(self, *_) -> None:
    for process in self.running.values():
      process.terminate()
    for process in self.running.values():
      try:
        process.communicate(timeout=10)
      except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def report_of(study: pathlib.Path, name: str) -> dict[str, object]:
  """What a party has written down; empty if it could not."""
  try:
    return json.loads((study / name / 'report.json').read_text())
  except (OSError, ValueError):
    return {}


def senders(study: pathlib.Path) -> list[str]:
  """Relays and the dealer."""
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
      raise ValueError('owners have not sent in time')
    time.sleep(.005)
