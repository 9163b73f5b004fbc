"""What is proved of private quantiles beside what they do."""
