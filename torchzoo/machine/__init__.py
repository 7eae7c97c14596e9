"""The machine that torchzoo runs on: facts, differences between machines, limits, and the process itself."""
