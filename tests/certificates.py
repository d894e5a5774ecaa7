"""Self-signed certificates for tests, made by openssl's command line."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def self_signed(
    folder: Path, *names: str, usage: str = "serverAuth", stem: str = "endpoint"
) -> tuple[Path, Path]:
    """Files of a certificate for `names` (DNS:... or IP:...) and of its key, which only we read."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    certificate, key = folder / f"{stem}.pem", folder / f"{stem}-key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=a test"),
            *("-addext", f"subjectAltName={','.join(names)}"),
            *("-addext", f"extendedKeyUsage={usage}"),
            *("-out", str(certificate), "-keyout", str(key)),
        ],
        check=True,
        capture_output=True,
    )
    key.chmod(0o600)
    return certificate, key
