"""The check: whether a case computes what eager computes, judged by an fp64 reference.

`check` gives the verdict. `runs` makes the runs that it needs, and `randomness` gives them the same random numbers.
`results` is what a run leaves behind. `reference` measures errors (`matching` those of sets of detections). `judging`
decides whether an error is small enough, by `tolerances`. `milder`, `tf32` and `quantized` are for what rounding hides:
weights that amplify it less, products that round as TF32 does, and references of quantized models.
"""
