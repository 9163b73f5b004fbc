"""What `python -m launch.audit` knows by name, and tests of the auditor."""
