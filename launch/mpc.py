"""Runs a statistic of several parties: `dpjax mpc`."""

from dpjax.cli import commands

if __name__ == '__main__':
  commands.run('mpc')
