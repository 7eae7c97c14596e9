"""torchzoo: measure PyTorch models honestly, one or the whole zoo."""

__version__ = "0.1.0"
