"""The check: whether a case computes what eager computes, judged by an fp64 reference.

`check_case` gives the verdict, by `verdicts`. `runs` makes the runs that it needs, and `randomness` gives them the same
random numbers. `results` collects what a step computes and changes. `reference` measures errors (`matching` those of
sets of detections). `judging` decides whether an error is small enough, by `tolerances`. `milder`, `rounding` and
`quantized` are for what rounding hides: weights that amplify it less, its effects, and references of quantized models.
"""
