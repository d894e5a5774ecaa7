"""`python -m zluda_stack` is the same program as `zluda-stack`."""

from zluda_stack.cli.entry import main

if __name__ == "__main__":
    main()
