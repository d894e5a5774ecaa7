"""The files of the user's own that a plan names: whether the stack can use them.

No facts of a machine hold what is in them, so the plan itself cannot tell.
"""

from __future__ import annotations

from collections.abc import Callable

from zluda_stack.errors import HostProblem
from zluda_stack.plan.types import Notice, Plan


def require_usable(plan: Plan) -> None:
    """Return when the certificate, its key and the page's login of `plan` can be used.

    Raises HostProblem for the first that is missing or malformed.
    """
    for look in _LOOKS.values():
        look(plan)


def lacks(plan: Plan) -> tuple[Notice, ...]:
    """What `require_usable` would raise, for each of these files."""
    found = []
    for code, look in _LOOKS.items():
        try:
            look(plan)
        except HostProblem as problem:
            found.append(Notice(code=code, message=problem.message, hint=problem.hint))
    return tuple(found)


def _look_at_certificate(plan: Plan) -> None:
    if plan.endpoint.tls is None:
        return
    from zluda_stack import tls

    tls.require_usable(plan.endpoint)


def _look_at_login(plan: Plan) -> None:
    if plan.page is None or plan.page.login is None:
        return
    from zluda_stack.page_login import read_login

    read_login(plan.page.login)


_LOOKS: dict[str, Callable[[Plan], None]] = {
    "tls": _look_at_certificate,
    "webui-login": _look_at_login,
}
