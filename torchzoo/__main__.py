"""`python -m torchzoo` is `torchzoo`."""

import sys

from torchzoo.cli import main

if __name__ == "__main__":
    sys.exit(main())
