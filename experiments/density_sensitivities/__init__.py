"""How far one record moves what estimators of densities release."""
