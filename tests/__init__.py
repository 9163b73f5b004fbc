"""Tests dpjax; as a package, so that no other `tests` package hides it."""
