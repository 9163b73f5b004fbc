"""Tests implementations against their privacy claims: `dpjax audit`."""

from dpjax.cli import commands

if __name__ == '__main__':
  commands.run('audit')
