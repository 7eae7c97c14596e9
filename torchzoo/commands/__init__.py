"""The larger subcommands of `torchzoo`, each in its own module."""
