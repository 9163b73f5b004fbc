"""Trains on gradients that no server sees: `dpjax mpc_train`."""

from dpjax.cli import commands

if __name__ == '__main__':
  commands.run('mpc_train')
