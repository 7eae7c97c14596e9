"""Whether a case computes what eager computes, judged by an fp64 reference."""
