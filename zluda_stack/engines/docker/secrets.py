"""What containers must know and nobody else: files that are mounted, never variables.

They lie below the stack's folder, which only its owner may enter. The files themselves are
readable by all, since a container's user is another one than this.
"""

from __future__ import annotations

import stat

from zluda_stack import keys
from zluda_stack.engines.docker.state import StackFolder
from zluda_stack.errors import HostProblem
from zluda_stack.files import write_atomic
from zluda_stack.page_login import read_login
from zluda_stack.plan.endpoint_service import CERTIFICATE, KEY
from zluda_stack.plan.page import LOGIN
from zluda_stack.plan.types import Plan
from zluda_stack.render.environment import quote
from zluda_stack.tls import read_pem

_KEY_HASHES = "api_key_hashes"
_MODE = 0o444


def with_secret_files(files: dict[str, str], plan: Plan, folder: StackFolder) -> dict[str, str]:
    """The rendered `files`, their .env told where the secrets of `plan` lie.

    The user's own certificate and key stand there already, and a container could not read them.
    """
    places = {f"ZLUDA_STACK_{name.upper()}_FILE=": folder.secrets / name for name in _secrets(plan)}
    environment = "compose/.env"
    others = files[environment].splitlines(keepends=True)
    kept = [line for line in others if not line.startswith(tuple(places))]
    told = [f"{variable}{quote(str(place))}\n" for variable, place in places.items()]
    return {**files, environment: "".join(kept + told)}


def write_secrets(plan: Plan, folder: StackFolder) -> bool:
    """Write the files; True when one of them is new or another than before."""
    contents = {secret: _content(secret, plan) for secret in _secrets(plan)}
    changed = [name for name, text in contents.items() if _read(folder, name) != text]
    for name in changed:
        write_atomic(folder.secrets / name, contents[name], mode=_MODE)
    return bool(changed)


def are_written(plan: Plan, folder: StackFolder) -> bool:
    """True when `write_secrets` would change nothing. Makes no key."""
    wanted = _secrets(plan)
    if wanted and keys.read_key(plan.name) is None:
        return False
    return all(_read(folder, secret) == _content(secret, plan) for secret in wanted)


def publish_keys(folder: StackFolder, stack: str) -> None:
    """Tell the containers that run of keys that came or went. Raises HostProblem.

    They have mounted the very file and would keep it if another took its place, so this one is
    written over. Who reads it between the two steps finds a line that is none, and reads again.
    """
    file = folder.secrets / _KEY_HASHES
    if not file.exists():
        return
    try:
        file.chmod(_MODE | stat.S_IWUSR)
        with file.open("r+") as handle:
            handle.write(keys.accepted(stack))
            handle.truncate()
        file.chmod(_MODE)
    except OSError as error:
        raise HostProblem(
            f"cannot write {file}: {error.strerror}", "Check the folder's owner and free space."
        ) from error


def _secrets(plan: Plan) -> list[str]:
    return sorted({secret for service in plan.services for secret in service.secrets})


def _content(secret: str, plan: Plan) -> str:
    """What the file of `secret` must hold. Raises HostProblem when the user's own is not there."""
    if secret == _KEY_HASHES:
        return keys.accepted(plan.name)
    if secret == LOGIN and plan.page is not None and plan.page.login is not None:
        return read_login(plan.page.login)
    tls = plan.endpoint.tls
    if tls is None or secret not in (CERTIFICATE, KEY):
        raise KeyError(f"no service may ask for the secret {secret}")
    return read_pem(tls.certificate if secret == CERTIFICATE else tls.key)


def _read(folder: StackFolder, name: str) -> str | None:
    try:
        return (folder.secrets / name).read_text()
    except OSError:
        return None
