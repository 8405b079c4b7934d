"""`python -m lbzoo`: the same as the `lbzoo` command."""

from __future__ import annotations

import sys

from lbzoo.cli import main

if __name__ == "__main__":
    sys.exit(main())
