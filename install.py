"""`python install.py [MODEL ...]` is `torchzoo install`, and works before anything is installed."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  pip, which would say so, has not run yet
    sys.exit(f"torchzoo needs Python 3.11 or later; this is {sys.version.split()[0]}")

from torchzoo.install import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
