"""Runs over time, and versions held against each other."""
