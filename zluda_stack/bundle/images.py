"""Container images out of the Docker Engine into a bundle, and back, as streams."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from zluda_stack.bundle.manifest import Member
from zluda_stack.bundle.reader import Bundle
from zluda_stack.errors import HostProblem
from zluda_stack.progress import Progress

_CHUNK = 1 << 20


def save_command(tag: str) -> tuple[str, ...]:
    """The command that writes the image `tag` as a tar archive to its stdout."""
    return ("docker", "save", tag)


@contextmanager
def saved(tag: str) -> Iterator[IO[bytes]]:
    """What `docker save` writes of the image `tag`. Raises HostProblem when it fails."""
    with (
        tempfile.TemporaryFile() as complaint,
        _program(save_command(tag), stdout=subprocess.PIPE, stderr=complaint) as process,
    ):
        assert process.stdout is not None  # noqa: S101 -- asked for above
        yield process.stdout
        if process.wait() != 0:
            raise _failure(f"the image {tag} was not saved", complaint)


def load(bundle: Bundle, member: Member, progress: Progress) -> None:
    """Give the image in `member`, which was checked before, to the engine. Raises HostProblem."""
    with (
        tempfile.TemporaryFile() as told,
        _program(
            ("docker", "load", "--quiet"), stdin=subprocess.PIPE, stdout=told, stderr=told
        ) as process,
    ):
        assert process.stdin is not None  # noqa: S101 -- asked for above
        try:
            with bundle.open(member) as source:
                _feed(source, process.stdin, member.size, progress)
            process.stdin.close()
        except BrokenPipeError:  # it says itself why it ended
            pass
        if process.wait() != 0:
            raise _failure(f"the engine did not take {member.path}", told)


def _feed(source: IO[bytes], sink: IO[bytes], size: int, progress: Progress) -> None:
    done = 0
    while chunk := source.read(_CHUNK):
        sink.write(chunk)
        done += len(chunk)
        progress.bytes(done, size)


@contextmanager
def _program(
    command: tuple[str, ...],
    *,
    stdin: int = subprocess.DEVNULL,
    stdout: int | IO[bytes],
    stderr: IO[bytes],
) -> Iterator[subprocess.Popen[bytes]]:
    """`command` running, in a session of its own; killed when the `with` block is left early."""
    try:
        process = subprocess.Popen(
            command, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
        )
    except FileNotFoundError as error:
        raise HostProblem(
            "the docker command is not installed", "Install Docker Engine."
        ) from error
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


def _failure(what: str, complaint: IO[bytes]) -> HostProblem:
    complaint.seek(0)
    said = complaint.read().decode(errors="replace").strip().splitlines()
    return HostProblem(
        f"{what}: {said[-1] if said else 'docker said nothing'}",
        "`docker info` shows whether the engine answers, `docker system df` what its disk has.",
    )
