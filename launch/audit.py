"""Tests implementations against their privacy claims: `dpjax audit`.

A flag that begins with --zoo audits the real bugs of `experiments/audit_zoo`,
which only a checkout has.
"""

import sys

from dpjax.cli import commands
from dpjax.cli import errors

if __name__ == '__main__':
  if any(word.startswith('-') and word.lstrip('-').startswith('zoo')
         for word in sys.argv[1:]):
    # Imported here, because the other audits do not need it.
    from experiments.audit_zoo import main as zoo
    errors.run_main(zoo.main, zoo.parse)
  else:
    commands.run('audit')
