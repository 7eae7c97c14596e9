"""Versions held against each other: which one is the first bad one."""
