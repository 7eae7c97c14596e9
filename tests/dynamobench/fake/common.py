"""What the made-up dynamobench's main file imports beside itself, as the real one does."""

import argparse


def options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--output-directory", required=True)
    parser.add_argument("--training", action="store_true")
    return parser.parse_args(words)
