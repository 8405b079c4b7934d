"""Keras model classes."""
