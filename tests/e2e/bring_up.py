"""`bring_up.py PLAN.json`: `up` of the plan's engine in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

from zluda_stack.engines import engine_for
from zluda_stack.errors import StackError
from zluda_stack.plan.types import from_json


class Printed:
    """Progress as lines on standard output."""

    def step(self, text: str) -> None:
        print(text, flush=True)

    def bytes(self, done: int, total: int | None) -> None:
        print(done, total, flush=True)


def main() -> None:
    plan = from_json(Path(sys.argv[1]).read_bytes())
    try:
        engine_for(plan.engine).up(plan, Printed())
    except StackError as error:
        print(error.message, flush=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
