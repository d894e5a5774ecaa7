"""The endpoint's certificate: whether it can be used, and how this machine's own tools trust it."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path

from zluda_stack.errors import HostProblem
from zluda_stack.files import write_atomic
from zluda_stack.plan.types import EndpointPlan, Tls

# Where systems keep the authorities that they trust: Debian, Fedora, openSUSE.
_SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
)


def read_pem(path: str) -> str:
    """The text of a PEM file. Raises HostProblem."""
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError as error:
        raise HostProblem(
            f"cannot read {path}: {error.strerror}",
            "The endpoint needs the files of --tls-cert and --tls-key, readable by you.",
        ) from error
    except UnicodeDecodeError as error:
        raise _no_pem(path) from error


def require_usable(endpoint: EndpointPlan) -> None:
    """Return when clients of `endpoint` can accept its certificate; without TLS, at once.

    Raises HostProblem: a file is missing, is no PEM, does not belong to the other one, is over,
    or is for another name.
    """
    tls = endpoint.tls
    if tls is None:
        return
    if "ENCRYPTED" in read_pem(tls.key):
        raise HostProblem(
            f"the private key in {tls.key} is locked by a passphrase, and nobody could type it",
            f"Write it without one: openssl pkey -in {tls.key} -out FILE",
        )
    server = _server_context(tls)
    try:
        _shake_hands(server, trusting(tls.certificate), endpoint.server_name)
    except ssl.SSLCertVerificationError as error:
        raise _refused(endpoint, tls, error) from error


def trusting(certificate: str) -> ssl.SSLContext:
    """For a client that accepts the one in the file `certificate`, whoever signed it, and no other.

    Raises OSError when the file cannot be read or used.
    """
    context = ssl.create_default_context(cafile=certificate)
    # The file may hold the server's certificate alone, without the authority above it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


class LocalConnection(http.client.HTTPConnection):
    """To `endpoint` at the address where this machine reaches it.

    Over TLS it must show its very certificate, for the name that clients use. Raises OSError
    when connecting.
    """

    def __init__(self, endpoint: EndpointPlan, timeout: float) -> None:
        super().__init__(endpoint.host, endpoint.port, timeout=timeout)
        self._endpoint = endpoint

    def connect(self) -> None:
        """Open the connection."""
        super().connect()
        tls = self._endpoint.tls
        if tls is not None:
            plain: socket.socket = self.sock
            name = self._endpoint.server_name
            self.sock = trusting(tls.certificate).wrap_socket(plain, server_hostname=name)


def write_bundle(certificate: str, to: Path, environ: Mapping[str, str]) -> None:
    """Write to `to` all authorities that this user's programs trust, and `certificate`.

    For variables such as SSL_CERT_FILE, which take the place of what programs trust otherwise.
    Raises HostProblem.
    """
    bundle = read_pem(certificate)
    if (others := _authorities(to, environ)) is not None:
        bundle = f"{others.rstrip()}\n{bundle}"
    if not to.exists() or to.read_text() != bundle:
        write_atomic(to, bundle)


def _authorities(but: Path, environ: Mapping[str, str]) -> str | None:
    """What is trusted without `but`, which a shell that was connected before has in its place."""
    from requests.utils import DEFAULT_CA_BUNDLE_PATH

    for name in (environ.get("SSL_CERT_FILE"), *_SYSTEM_BUNDLES, DEFAULT_CA_BUNDLE_PATH):
        path = None if not name else Path(name)
        if path is not None and path.is_file() and not _same_file(path, but):
            return path.read_text(errors="replace")
    return None


def _same_file(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _server_context(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _require_pem(tls.certificate, "CERTIFICATE-----", "the certificate")
    _require_pem(tls.key, "PRIVATE KEY-----", "the private key")
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise HostProblem(
                f"{tls.key} is not the private key of the certificate in {tls.certificate}",
                "Give the two files that belong together.",
            ) from error
        raise HostProblem(
            f"{tls.certificate} and {tls.key} cannot be used: {error.reason or error}",
            "The first must hold the server's certificate and then those above it, the second "
            "its private key.",
        ) from error
    return context


def _require_pem(path: str, label: str, what: str) -> None:
    """Raises HostProblem unless the PEM file has a block whose first line ends with `label`."""
    text = read_pem(path)
    if "-----BEGIN" not in text:
        raise _no_pem(path)
    if label not in text:
        raise HostProblem(
            f"{path} is given as {what}, and none is in it",
            "--tls-cert takes the certificate, --tls-key its private key; are they swapped?",
        )


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """Let both meet in memory. Raises SSLCertVerificationError when the client refuses."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    while True:
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            if side is sides[0]:
                return


def _refused(endpoint: EndpointPlan, tls: Tls, error: ssl.SSLCertVerificationError) -> HostProblem:
    name = endpoint.server_name
    told = error.verify_message.rstrip(".")
    if "mismatch" in told:
        return HostProblem(
            f"the certificate in {tls.certificate} is not for {name}",
            "Name one that it is for with --hostname, by which clients then connect; one for this "
            "machine alone has the subject alternative name IP:127.0.0.1.",
        )
    return HostProblem(
        f"clients would refuse the certificate in {tls.certificate}: {told}",
        "Give --tls-cert another one; `openssl x509 -noout -text -in FILE` shows what is in it.",
    )


def _no_pem(path: str) -> HostProblem:
    return HostProblem(
        f"{path} is no PEM file", "It begins with a line such as -----BEGIN CERTIFICATE-----."
    )
