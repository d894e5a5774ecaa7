"""`config set` and `config edit`: only what was asked changes, and no broken file is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.command_line import write
from zluda_stack.config import edit, yaml_file
from zluda_stack.errors import UsageError

COMMENTED = """\
# My card is an RX 7900 XTX.
gpu: gfx1100   # the big one

# The endpoint.
port: 8080     # free on this machine
bind: "127.0.0.1"
"""


def test_setting_a_value_keeps_comments_order_and_quotes(tmp_path: Path) -> None:
    file = write(tmp_path / "zluda-stack.yml", COMMENTED)

    edit.set_value(file, "port", "9090")

    assert file.read_text() == COMMENTED.replace("port: 8080", "port: 9090")


def test_a_new_key_is_added_at_the_end(tmp_path: Path) -> None:
    file = write(tmp_path / "zluda-stack.yml", COMMENTED)

    edit.set_value(file, "threads", "4")

    assert file.read_text() == COMMENTED + "threads: 4\n"


def test_a_file_of_comments_only_keeps_them(tmp_path: Path) -> None:
    file = write(tmp_path / "zluda-stack.yml", "# first\n\n# second\n")

    edit.set_value(file, "threads", "4")

    assert file.read_text() == "# first\n\n# second\nthreads: 4\n"


def test_the_first_value_makes_the_file(tmp_path: Path) -> None:
    file = tmp_path / "new" / "zluda-stack.yml"

    edit.set_value(file, "accept-cuda-eula", "true")

    assert yaml_file.read(file)["accept_cuda_eula"].value is True


@pytest.mark.parametrize("there", [True, False], ids=["whole link", "dangling link"])
def test_a_link_to_the_file_stays_a_link(there: bool, tmp_path: Path) -> None:
    behind = tmp_path / "dotfiles" / "zluda-stack.yml"
    if there:
        write(behind, COMMENTED)
    file = tmp_path / "zluda-stack.yml"
    file.symlink_to(behind)

    edit.set_value(file, "port", "9090")

    assert file.is_symlink()
    assert yaml_file.read(behind)["port"].value == 9090


@pytest.mark.parametrize("text", ["no", "1.10", "null", "0x1F", "a: b", "# x", "'q'", "2026-01-01"])
def test_text_that_yaml_takes_for_something_else_is_written_so_that_it_stays_text(
    text: str, tmp_path: Path
) -> None:
    file = tmp_path / "zluda-stack.yml"

    edit.set_value(file, "gpu", text)

    assert yaml_file.read(file)["gpu"].value == text


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("prot", "1", "there is no setting 'prot'"),
        ("port", "eighty", "port: expected a whole number"),
        ("engine", "podman", "engine: expected one of auto, docker, embedded"),
        ("model", "", "model needs a value"),
    ],
)
def test_what_is_no_setting_is_refused_and_the_file_stays(
    key: str, value: str, message: str, tmp_path: Path
) -> None:
    file = write(tmp_path / "zluda-stack.yml", COMMENTED)

    with pytest.raises(UsageError) as caught:
        edit.set_value(file, key, value)

    assert caught.value.message.startswith(message)
    assert caught.value.hint
    assert file.read_text() == COMMENTED


@pytest.mark.parametrize("text", ["port: [\n", "prot: 1\n", "port: 1\nport: 2\n"])
def test_a_broken_file_is_not_set_in(text: str, tmp_path: Path) -> None:
    file = write(tmp_path / "zluda-stack.yml", text)

    with pytest.raises(UsageError):
        edit.set_value(file, "threads", "4")

    assert file.read_text() == text


def test_a_value_that_refers_to_the_changed_one_keeps_its_own(tmp_path: Path) -> None:
    file = write(tmp_path / "zluda-stack.yml", "context: &size 4096\nport: *size\n")

    edit.set_value(file, "context", "8192")

    values = {key: entry.value for key, entry in yaml_file.read(file).items()}
    assert values == {"context": 8192, "port": 4096}


def test_a_file_that_cannot_take_a_value_is_left_to_the_user(tmp_path: Path) -> None:
    file = write(tmp_path / "zluda-stack.yml", "null\n")

    with pytest.raises(UsageError) as caught:
        edit.set_value(file, "threads", "4")

    assert "and leave everything else as it is" in caught.value.message
    assert "by hand" in caught.value.hint
    assert file.read_text() == "null\n"


def test_the_permissions_of_the_file_stay(tmp_path: Path) -> None:
    file = write(tmp_path / "zluda-stack.yml", COMMENTED)
    file.chmod(0o600)

    edit.set_value(file, "threads", "4")

    assert file.stat().st_mode & 0o777 == 0o600


def test_an_edited_file_is_installed(tmp_path: Path) -> None:
    file = write(tmp_path / "zluda-stack.yml", COMMENTED)

    assert edit.edit(file, lambda copy: _replace(copy, "8080", "9090"))

    assert file.read_text() == COMMENTED.replace("8080", "9090")
    assert list(tmp_path.iterdir()) == [file]


def test_an_untouched_file_is_reported_as_such(tmp_path: Path) -> None:
    file = write(tmp_path / "zluda-stack.yml", COMMENTED)

    assert not edit.edit(file, lambda _: None)

    assert file.read_text() == COMMENTED


def test_a_broken_edit_is_kept_beside_the_old_file_and_can_be_mended(tmp_path: Path) -> None:
    file = write(tmp_path / "zluda-stack.yml", COMMENTED)

    with pytest.raises(UsageError) as caught:
        edit.edit(file, lambda copy: _replace(copy, "port:", "prot:"))

    kept = tmp_path / "zluda-stack.yml.edited"
    assert f"{kept}:5: there is no setting 'prot'" in caught.value.message
    assert str(kept) in caught.value.hint
    assert file.read_text() == COMMENTED
    assert edit.edit(file, lambda copy: _replace(copy, "prot: 8080", "port: 9090"))
    assert file.read_text() == COMMENTED.replace("8080", "9090")
    assert not kept.exists()


def test_a_broken_file_can_be_mended_by_hand(tmp_path: Path) -> None:
    file = write(tmp_path / "zluda-stack.yml", "port: [\n")

    edit.edit(file, lambda copy: _replace(copy, "[", "1"))

    assert yaml_file.read(file)["port"].value == 1


def _replace(file: Path, old: str, new: str) -> None:
    file.write_text(file.read_text().replace(old, new))
