"""Releases a private statistic of a file: `dpjax estimate`."""

from dpjax.cli import commands

if __name__ == '__main__':
  commands.run('estimate')
