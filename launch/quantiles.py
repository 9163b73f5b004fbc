"""Measures the errors of private quantiles: `dpjax quantiles`."""

from dpjax.cli import commands

if __name__ == '__main__':
  commands.run('quantiles')
