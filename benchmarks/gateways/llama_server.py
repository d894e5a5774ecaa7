"""llama.cpp's own server with many slots: `... llama_server PORT MODEL SLOTS`."""

from __future__ import annotations

import signal
import sys

import xllamacpp

_TOKENS_A_SLOT = 512


def main(port: int, model: str, slots: int) -> None:
    """Serve until a signal ends it."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.model_alias = {"default"}
    parameters.n_ctx = slots * _TOKENS_A_SLOT
    parameters.n_parallel = slots
    parameters.n_gpu_layers = 0
    parameters.port = port
    parameters.ui = False
    server = xllamacpp.Server(parameters)
    print(f"serving on {server.listening_address}", file=sys.stderr)
    signal.pause()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
