"""Parts of `dpjax.audit.replay`: runs that are recorded and replayed."""
