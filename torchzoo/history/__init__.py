"""Compare runs over time, and software environments with each other. The folders of runs are the source of all data."""
