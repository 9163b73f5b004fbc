"""Runs the `dpjax` command as `python -m dpjax.cli`."""

from dpjax.cli import commands

if __name__ == '__main__':
  commands.main()
