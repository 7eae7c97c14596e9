"""`python run.py MODEL ...` is `torchzoo run MODEL ...`."""

import sys

from torchzoo.__main__ import main

if __name__ == "__main__":
    sys.exit(main("run"))
