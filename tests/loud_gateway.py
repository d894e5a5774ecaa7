"""The endpoint as a process that logs all that anything in it has to say, and waits for little.

On SIGUSR1 it writes how many tasks it has. Its options are those of the endpoint.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from functools import partial
from types import FrameType
from unittest import mock

from zluda_stack.gateway import __main__ as endpoint
from zluda_stack.gateway import app
from zluda_stack.gateway.streams import Patience

_IMPATIENT = partial(
    Patience, before_start=0.1, between_pings=0.05, between_tries=0.02, for_server=0.2
)


def _tell_tasks(_signal: int, _frame: FrameType | None) -> None:
    print(f"tasks: {len(asyncio.all_tasks())}", flush=True)


def main() -> None:
    logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
    logging.getLogger(__name__).debug("every word is logged")
    signal.signal(signal.SIGUSR1, _tell_tasks)
    with mock.patch.object(app, "Patience", _IMPATIENT):
        endpoint.main()


if __name__ == "__main__":
    main()
