"""Measurements, taken as ratios within one run."""
