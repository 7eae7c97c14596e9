"""The check: whether a case computes what eager computes, judged by an fp64 reference.

`check_case` gives the verdict, by `verdicts`, and judges again where something is left open. `runs` makes the runs that
it needs, and `randomness` gives them the same random numbers. `results` collects what a step computes and changes.
`reference` measures errors (`matching` those of sets of detections). `judging` decides whether an error is small
enough, by `tolerances`. `rounding` imitates and damps what rounding does; `quantized` is for quantized models.
"""
