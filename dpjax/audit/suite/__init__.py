"""Targets that `dpjax audit` knows by name, and tests of the auditor."""
