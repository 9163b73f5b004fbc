"""How errors of quantiles fall with n and epsilon."""
