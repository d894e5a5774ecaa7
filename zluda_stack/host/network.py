"""TCP ports that are taken, and which variables point to a proxy or a CA bundle."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from zluda_stack.host import reading
from zluda_stack.host.facts import NetworkFacts

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "FTP_PROXY")
_BUNDLES = (
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "PIP_CERT",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "NODE_EXTRA_CA_CERTS",
)
# A line of proc_net_tcp(5) in state LISTEN: number, local address:port, remote address:port, 0A.
_LISTENS = re.compile(r"^ *\d+: [0-9A-F]+:([0-9A-F]{4}) [0-9A-F]+:[0-9A-F]{4} 0A ", re.MULTILINE)


def read_network(environ: Mapping[str, str]) -> NetworkFacts:
    """The names of the variables that are set and not empty; their values stay where they are."""
    proxies = (spelling for name in _PROXIES for spelling in (name, name.lower()))
    return NetworkFacts(
        proxy_variables=tuple(name for name in proxies if environ.get(name)),
        ca_variables=tuple(name for name in _BUNDLES if environ.get(name)),
    )


def listening_ports(root: Path) -> tuple[int, ...]:
    """The TCP ports in state LISTEN; empty where there is no /proc.

    The kernel lists listeners before connections, so a cut at the bound loses none of them.
    """
    found: set[int] = set()
    for name in ("tcp", "tcp6"):
        table = reading.text(root / "proc/net" / name, reading.LARGE)
        found.update(int(port, 16) for port in _LISTENS.findall(table))
    return tuple(sorted(found))
