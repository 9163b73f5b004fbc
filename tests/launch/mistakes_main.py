"""Runs command lines, each in a fork that has imported JAX and the package.

From standard input a JSON list of [blocked modules, words]; to standard output
a JSON list of [exit status, stdout, stderr].
"""

import json
import os
import runpy
import sys
import tempfile
import traceback

import dpjax.audit.suite.run_folders  # noqa: F401
import dpjax.release.registry  # noqa: F401
import dpjax.runs.training  # noqa: F401


def _child(blocked, words):
  for module in blocked:
    # None stands for a module that is not found.
    sys.modules[module] = None
  sys.argv = list(words)
  try:
    runpy.run_module(f'launch.{words[0]}', run_name='__main__', alter_sys=True)
    return 0
  except SystemExit as error:
    return error.code or 0
  except BaseException:  # what a user would see as a traceback
    traceback.print_exc()
    return 99


def _run(blocked, words):
  with tempfile.TemporaryFile('w+') as out, \
      tempfile.TemporaryFile('w+') as err:
    process = os.fork()
    if not process:
      os.dup2(out.fileno(), 1)
      os.dup2(err.fileno(), 2)
      status = _child(blocked, words)
      sys.stdout.flush()
      sys.stderr.flush()
      os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    out.seek(0)
    err.seek(0)
    return status, out.read(), err.read()


if __name__ == '__main__':
  cases = json.load(sys.stdin)
  json.dump([_run(*case) for case in cases], sys.stdout)
