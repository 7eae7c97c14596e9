"""Kinds of devices."""
