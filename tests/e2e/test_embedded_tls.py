"""A stack with a certificate, as a user types it: its own tools speak HTTPS and trust just that."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import anthropic
import pytest
import requests

from tests.certificates import self_signed
from tests.e2e.conftest import free_port
from tests.unit.command_line import Outcome, run, settle
from tests.unit.connecting import after_eval
from zluda_stack import keys, paths
from zluda_stack.errors import ExitCode

pytestmark = pytest.mark.embedded

# Made for a name that resolves nowhere: own tools go by the address, and expect the name.
NAME = "models.stack.test"


@dataclass(frozen=True)
class Secure:
    """A running stack that is reached as NAME, and how `up` went."""

    home: Path
    port: int
    certificate: Path
    up: Outcome

    @property
    def url(self) -> str:
        return f"https://{NAME}:{self.port}"


@pytest.fixture(scope="module")
def secure(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        home = tmp_path_factory.mktemp("secure")
        project = settle(home, monkeypatch)
        self_signed(project, f"DNS:{NAME}", "IP:127.0.0.1", stem="own")
        port = free_port()
        (project / "zluda-stack.yml").write_text(
            f"model: {gguf}\ncontext: 8192\nthreads: 1\nport: {port}\nhostname: {NAME}\n"
            "tls_cert: own.pem\ntls_key: own-key.pem\nqueue: 7\n"
            "allow_origins: https://chat.example.org\ncapture_prompts: true\n"
        )
        yield Secure(home, port, project / "own.pem", run("up", "--engine", "embedded"))
        run("down", "--all")


def test_up_proves_itself_over_https(secure: Secure) -> None:
    assert secure.up.code == ExitCode.OK, secure.up.err
    assert f"Running: {secure.url} serves" in secure.up.out
    assert len([line for line in secure.up.out.splitlines() if line.startswith("✓ /v1/")]) == 4
    assert "warning: every prompt and every answer is written to disk" in secure.up.err
    assert "without TLS" not in secure.up.err


def test_a_second_up_and_status_find_it_healthy(secure: Secure) -> None:
    assert run("up", "--engine", "embedded", "--json").json["already_running"]
    told = run("status", "--json")
    assert (told.code, told.json["healthy"], told.json["url"]) == (0, True, secure.url)


def test_what_the_settings_say_reaches_the_endpoint(secure: Secure) -> None:
    answer = requests.get(
        f"https://127.0.0.1:{secure.port}/health",
        headers={"origin": "https://chat.example.org"},
        verify=str(secure.certificate),
        timeout=10,
    )
    assert answer.headers["access-control-allow-origin"] == "https://chat.example.org"
    with pytest.raises(requests.RequestException):
        requests.get(f"http://127.0.0.1:{secure.port}/health", timeout=10)
    kept = paths.stack("default") / "capture"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    assert any(b"Say hello" in path.read_bytes() for path in kept.glob("*.request"))


def test_an_up_without_what_made_it_secure_changes_nothing_unasked(secure: Secure) -> None:
    project = Path("zluda-stack.yml")
    kept = project.read_text()
    project.write_text(f"port: {secure.port}\n")
    try:
        refused = run("up", "--engine", "embedded")
    finally:
        project.write_text(kept)

    assert refused.code == ExitCode.USAGE
    assert f"endpoint {secure.url} -> http://" in refused.err
    assert "prompts on disk yes -> no (capture_prompts is not set any more)" in refused.err
    assert run("status", "--json").json["url"] == secure.url


def test_a_client_is_checked_over_https(secure: Secure) -> None:
    checked = run("connect", "openai", "--check", "--json")
    assert checked.code == ExitCode.OK, checked.err
    findings = {one["name"]: one["verdict"] for one in checked.json["openai"]}
    assert findings["streaming"] == findings["context"] == "ok"
    assert run("connect", "openai", "--json").json["base_url"] == f"{secure.url}/v1"


def test_doctor_finds_that_it_answers(secure: Secure) -> None:
    findings = {one["id"]: one for one in run("doctor", "--json").json["findings"]}
    assert findings["endpoint.silent"]["status"] == "ok"
    assert secure.url in str(findings["endpoint.silent"])


def test_the_exports_let_clients_trust_it_and_all_that_they_trusted_before(secure: Secure) -> None:
    seen = after_eval(run("connect", "env").out)
    assert seen["ANTHROPIC_BASE_URL"] == secure.url
    assert seen["NODE_EXTRA_CA_CERTS"] == str(secure.certificate)
    bundle = Path(seen["SSL_CERT_FILE"]).read_text()
    assert bundle.endswith(secure.certificate.read_text())
    assert bundle.count("BEGIN CERTIFICATE") > 50
    # What a connected shell starts is told the same again, and the file does not grow.
    again = os.environ | {"SSL_CERT_FILE": seen["SSL_CERT_FILE"]}
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("SSL_CERT_FILE", again["SSL_CERT_FILE"])
        assert after_eval(run("connect", "env").out) == seen
    assert Path(seen["SSL_CERT_FILE"]).read_text() == bundle


def test_anthropics_client_works_with_what_connect_exports(
    secure: Secure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", after_eval(run("connect", "env").out)["SSL_CERT_FILE"])
    client = anthropic.Anthropic(
        base_url=f"https://127.0.0.1:{secure.port}",
        auth_token=keys.read_key("default"),
        max_retries=0,
    )
    message = client.messages.create(
        model="default", max_tokens=4, messages=[{"role": "user", "content": "Hello"}]
    )
    assert message.id.startswith("msg_")


def test_claude_code_is_told_of_the_certificate(secure: Secure) -> None:
    variables = run("connect", "claude", "--simple", "--json").json["env"]
    assert variables["ANTHROPIC_BASE_URL"] == secure.url
    assert variables["NODE_EXTRA_CA_CERTS"] == str(secure.certificate)


def test_a_dry_run_of_the_client_needs_no_client(
    secure: Secure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(secure.home))
    shown = run("claude", "--simple", "--dry-run", "-p", "hi")
    assert shown.code == ExitCode.OK, shown.err
    settings = paths.stack("default") / "claude-settings.json"
    assert shown.out == f"CLAUDE_CODE_SIMPLE=1 claude --settings {settings} -p hi\n"


def test_the_key_of_the_certificate_is_read_where_the_user_keeps_it(secure: Secure) -> None:
    key = secure.certificate.with_name("own-key.pem").read_text()
    state = paths.stack("default")
    assert not [path for path in state.rglob("*") if path.is_file() and key in path.read_text()]


def test_the_containers_way_to_ask_for_health_takes_it_too(secure: Secure) -> None:
    script = paths.images() / "_scripts" / "is-healthy"

    def healthy(*arguments: str) -> bool:
        return subprocess.run([str(script), *arguments], check=False).returncode == 0

    assert healthy(str(secure.port), str(secure.certificate))
    assert not healthy(str(secure.port))
    other, _ = self_signed(secure.home, "IP:127.0.0.1", stem="other")
    assert not healthy(str(secure.port), str(other))


@pytest.mark.parametrize(
    ("name", "usage", "told"),
    [
        ("DNS:elsewhere.test", "serverAuth", "is not for 127.0.0.1"),
        ("IP:127.0.0.1", "clientAuth", "clients would refuse"),
    ],
)
def test_a_certificate_that_clients_would_refuse_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, usage: str, told: str
) -> None:
    settle(tmp_path, monkeypatch)
    certificate, key = self_signed(tmp_path, name, usage=usage)
    files = ("--tls-cert", str(certificate), "--tls-key", str(key))
    refused = run("up", "--engine", "embedded", "--json", *files)
    assert refused.code == ExitCode.HOST
    assert told in json.loads(refused.out)["error"]["message"]
