"""Measuring: the clock, the stopping rule, interleaving, memory; each a small file."""
