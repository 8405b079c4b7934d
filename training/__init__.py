"""Training programs. Not installed with the package: run them from a checkout."""
