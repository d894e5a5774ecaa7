"""The file that says who may open the web page."""

from __future__ import annotations

import stat
from pathlib import Path

from zluda_stack.errors import HostProblem

_HINT = "It is one line for each user, user:password, with no other colon and no comma."


def read_login(path: str) -> str:
    """The text of the file `path`, one user:password a line.

    Raises HostProblem when it cannot be read, when it names nobody (the page would then ask for no
    password at all), and for a line that text-generation-webui would take for something else.
    """
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):  # a pipe could be read only once
            raise HostProblem(f"{path} is no file", _HINT)
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise HostProblem(
            f"cannot read {path}: {error.strerror}",
            "The page needs the file of --webui-login, readable by you.",
        ) from error
    except UnicodeDecodeError as error:
        raise HostProblem(f"{path} is no text", _HINT) from error
    users = [line.strip() for line in lines if line.strip()]
    if not users:
        raise HostProblem(f"{path} names nobody", _HINT)
    for number, user in enumerate(users, start=1):
        name, _, password = user.partition(":")
        if not name or not password or ":" in password or "," in user:
            raise HostProblem(f"entry {number} of {path} is not user:password", _HINT)
    return "".join(f"{user}\n" for user in users)
