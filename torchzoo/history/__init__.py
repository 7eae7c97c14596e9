"""Runs over time, and software environments that are held against each other. The folders of runs are the truth."""
