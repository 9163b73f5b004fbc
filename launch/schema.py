"""Drafts and checks the public schema of a file: `dpjax schema`."""

from dpjax.cli import commands

if __name__ == '__main__':
  commands.run('schema')
