"""Runs over time. The folders of the runs are the truth; the index is made from them, and can be made again."""
