"""Probes and classifiers on top of the models."""
