"""Whether a port can be listened on, asked before anything is started."""

from __future__ import annotations

import errno
import os
import socket

from zluda_stack.errors import HostProblem
from zluda_stack.plan.types import EndpointPlan


def require_free(endpoint: EndpointPlan) -> None:
    """Raises HostProblem, naming address and port, when `endpoint` cannot be listened on."""
    try:
        addresses = socket.getaddrinfo(
            endpoint.bind, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, address in addresses:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
    except (socket.gaierror, UnicodeError) as error:
        raise HostProblem(
            f"{endpoint.bind} is not an address",
            "Give --bind an address of this machine, such as 127.0.0.1.",
        ) from error
    except OSError as error:
        raise _problem(endpoint, error) from error


def _problem(endpoint: EndpointPlan, error: OSError) -> HostProblem:
    if error.errno == errno.EADDRINUSE:
        return HostProblem(
            f"port {endpoint.port} on {endpoint.bind} is taken by another program",
            "Stop that program, or choose another port with --port.",
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return HostProblem(
            f"{endpoint.bind} is not an address of this machine",
            "Give --bind an address of this machine, such as 127.0.0.1.",
        )
    if error.errno == errno.EACCES:
        return HostProblem(
            f"you may not listen on port {endpoint.port}", "Choose a port above 1023 with --port."
        )
    return HostProblem(
        f"cannot listen on {endpoint.bind} port {endpoint.port}: {os.strerror(error.errno or 0)}",
        "Choose another address with --bind or another port with --port.",
    )
