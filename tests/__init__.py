"""Tests of dpjax; a package, so that no other package's `tests` hides it."""
