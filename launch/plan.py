"""Compares plans of a training run: `dpjax plan`."""

from dpjax.cli import commands

if __name__ == '__main__':
  commands.run('plan')
