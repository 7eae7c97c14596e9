"""Measure one case: `measure_case` reads from top to bottom and calls the other modules, each of which does one thing.

`precision` and `variant` prepare the model. `warmup`, `latency` and `clock` time the steps, `memory` reads the peaks,
`compilation` watches Dynamo, `host` waits for a fast host. `passes` follow the timing, and `check` comes last.
"""
