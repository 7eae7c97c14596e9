"""Measuring one case. `case` reads top to bottom; the rest is what it uses, a small file for each thing.

`precision` and `variant` prepare the model. `warmup`, `latency`, `stopping` and `clock` time it, `memory` reads its
memory, `compilation` watches Dynamo, `idle` waits for the device. `passes` come after the timing, `check` comes last.
"""
