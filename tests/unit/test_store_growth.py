"""The size of a download that another process writes, while its folders come and go."""

from __future__ import annotations

import threading
from pathlib import Path

from zluda_stack.models.growth import largest_file


def test_it_is_the_largest_file_of_the_right_kind(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "x.whl").write_bytes(b"12345")
    (tmp_path / "y.whl").write_bytes(b"123")
    (tmp_path / "log").write_bytes(b"1234567")
    (tmp_path / "gone.whl").symlink_to("nowhere")
    assert largest_file(tmp_path, ".whl") == 5
    assert largest_file(tmp_path) == 7
    assert largest_file(tmp_path / "missing") == 0


def test_folders_that_vanish_meanwhile_are_no_error(tmp_path: Path) -> None:
    (tmp_path / "stays").write_bytes(b"1")
    done = threading.Event()

    def come_and_go() -> None:
        while not done.is_set():
            (tmp_path / "pip-unpack" / "inner").mkdir(parents=True)
            (tmp_path / "pip-unpack" / "inner").rmdir()
            (tmp_path / "pip-unpack").rmdir()

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        sizes = {largest_file(tmp_path) for _ in range(3000)}
    finally:
        done.set()
        thread.join()
    assert sizes == {1}
