"""Fixtures that these tests share with those of training."""

from tests.train.conftest import records as records
