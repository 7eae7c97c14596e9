"""The machine that torchzoo runs on: facts, differences between two, limits, and the process itself."""
