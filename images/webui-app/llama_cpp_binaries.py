"""The server that text-generation-webui starts for GGUF files: that of this image.

It asks a package of this name, which its project publishes with servers of its own in it.
"""

from __future__ import annotations

SERVER = "/opt/webui/own/llama-server"


def get_binary_path() -> str:
    """The program to start."""
    return SERVER
