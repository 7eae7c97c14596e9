"""`python install.py [MODEL ...]` is `torchzoo install`, and works before anything is installed."""

import sys

from torchzoo.install import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
