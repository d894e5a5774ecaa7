"""`python -m zluda_stack.gateway`: the endpoint as a process of its own."""

from __future__ import annotations

import argparse
import gc
import logging
import socket
import sys
import time

import uvicorn

from zluda_stack.gateway import options as command_line
from zluda_stack.gateway.app import Gateway
from zluda_stack.gateway.capture import Capture
from zluda_stack.gateway.cors import Cors
from zluda_stack.gateway.one_write import OneWriteProtocol
from zluda_stack.gateway.pool import Pool

_KEEP_ALIVE_SECONDS = 75


class _Server(uvicorn.Server):
    """Uvicorn, whose orderly end begins with that of the queue."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway) -> None:
        super().__init__(config)
        self._gateway = gateway

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End: what waits is sent away, what runs may end."""
        self._gateway.close()
        await super().shutdown(sockets)


class _Line(logging.Formatter):
    """The time in UTC, the level and the message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)sZ %(levelname)s %(message)s")
        self._second = 0
        self._told = ""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802
        """The second of `record`, which many share."""
        second = int(record.created)
        if second != self._second:
            self._second = second
            self._told = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return self._told


def _log_to_stdout() -> None:
    # What no line tells is not looked up: the HOWTO of logging, "Optimization". A third of the
    # cost of a line (32 us to 20 us).
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_Line())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _gateway(options: argparse.Namespace) -> Gateway:
    try:
        keys = command_line.keys(options)
    except (OSError, ValueError) as error:
        sys.exit(f"cannot read the keys: {error}")
    try:
        capture = None if options.capture is None else Capture(options.capture)
    except OSError as error:
        sys.exit(f"cannot capture: {error}")
    return Gateway(
        Pool(command_line.servers(options), queue=options.queue),
        keys,
        openai_only=options.upstream_dialect == "openai",
        cors=Cors(options.allow_origin),
        capture=capture,
    )


def _config(options: argparse.Namespace, gateway: Gateway) -> uvicorn.Config:
    config = uvicorn.Config(
        gateway,
        host=options.bind,
        port=options.port,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        http=OneWriteProtocol,
        lifespan="on",
        ssl_certfile=options.tls_cert,
        ssl_keyfile=options.tls_key,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=options.drain,
    )
    try:
        config.load()
    except OSError as error:  # ssl.SSLError is one
        sys.exit(f"cannot use the certificate and its key: {error}")
    return config


def main(arguments: list[str] | None = None) -> None:
    """Serve until SIGTERM, then let requests in flight end."""
    options = command_line.parse(arguments)
    _log_to_stdout()
    gateway = _gateway(options)
    server = _Server(_config(options, gateway), gateway)
    gc.freeze()  # what is loaded now stays for ever, and is not looked through again
    server.run()
    if not server.started:
        sys.exit(1)  # its log says why


if __name__ == "__main__":
    main()
