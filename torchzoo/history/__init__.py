"""Measurements over time: software environments that are measured beside each other."""
