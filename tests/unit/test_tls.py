"""Certificates: what is refused before a stack starts, and in which words."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.certificates import self_signed
from tests.unit.command_line import run, settle
from zluda_stack.errors import ExitCode, HostProblem
from zluda_stack.plan.types import EndpointPlan, Tls
from zluda_stack.tls import require_usable

PLAIN = EndpointPlan(bind="127.0.0.1", port=1, host="127.0.0.1")


def secured(certificate: Path, key: Path, name: str | None = None) -> EndpointPlan:
    tls = Tls(certificate=str(certificate), key=str(key))
    return msgspec.structs.replace(PLAIN, tls=tls, name=name)


def refusal(endpoint: EndpointPlan) -> str:
    with pytest.raises(HostProblem) as problem:
        require_usable(endpoint)
    assert problem.value.hint
    return problem.value.message


def test_without_tls_nothing_is_asked() -> None:
    require_usable(PLAIN)


def test_a_certificate_is_usable_by_the_names_that_it_is_for(tmp_path: Path) -> None:
    files = self_signed(tmp_path, "IP:127.0.0.1", "DNS:models.test")
    require_usable(secured(*files))
    require_usable(secured(*files, name="models.test"))
    assert "is not for other.test" in refusal(secured(*files, name="other.test"))


def test_files_that_are_not_there_or_no_pem_are_named(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path, "IP:127.0.0.1")
    absent, text = tmp_path / "absent.pem", tmp_path / "text.pem"
    text.write_text("a certificate\n")
    assert refusal(secured(absent, key)) == f"cannot read {absent}: No such file or directory"
    assert (
        refusal(secured(certificate, absent)) == f"cannot read {absent}: No such file or directory"
    )
    assert refusal(secured(text, key)) == f"{text} is no PEM file"
    assert refusal(secured(certificate, text)) == f"{text} is no PEM file"
    text.write_text("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")
    assert "cannot be used" in refusal(secured(text, key))


def test_swapped_files_are_called_so(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path, "IP:127.0.0.1")
    assert refusal(secured(key, certificate)) == (
        f"{key} is given as the certificate, and none is in it"
    )
    assert refusal(secured(certificate, certificate)) == (
        f"{certificate} is given as the private key, and none is in it"
    )


def test_a_key_of_another_certificate_and_a_locked_one_are_refused(tmp_path: Path) -> None:
    certificate, _ = self_signed(tmp_path, "IP:127.0.0.1")
    _, other = self_signed(tmp_path, "IP:127.0.0.1", stem="other")
    assert "is not the private key" in refusal(secured(certificate, other))
    other.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    assert "locked by a passphrase" in refusal(secured(certificate, other))


def test_plan_lists_what_is_wrong_with_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(tmp_path, monkeypatch)
    certificate, key = self_signed(tmp_path, "IP:127.0.0.1")
    absent = tmp_path / "nokey.pem"

    def lacking(key_file: Path) -> list[str]:
        files = ("--tls-cert", str(certificate), "--tls-key", str(key_file))
        told = run("plan", "--engine", "embedded", "--gpu", "none", "--json", *files)
        assert told.code == ExitCode.OK
        return [each["message"] for each in told.json["unmet"] if each["code"] == "tls"]

    assert lacking(absent) == [f"cannot read {absent}: No such file or directory"]
    assert lacking(key) == []
