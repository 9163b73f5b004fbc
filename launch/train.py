"""Trains networks with differential privacy: `dpjax train`."""

from dpjax.cli import commands

if __name__ == '__main__':
  commands.run('train')
