"""Prints minimax bounds: `dpjax bounds`."""

from dpjax.cli import commands

if __name__ == '__main__':
  commands.run('bounds')
