"""`python -m zluda_stack` is the same program as `zluda-stack`."""

import sys

from zluda_stack.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
