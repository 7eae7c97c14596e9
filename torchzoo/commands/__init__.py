"""The subcommands of `torchzoo` that are more than a few lines, a module each."""
