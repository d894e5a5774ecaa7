"""`keys`: who may use a stack besides its owner, and how much."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import click

from zluda_stack.cli import context, output
from zluda_stack.cli.options import dry_run_option, json_option, settings_options
from zluda_stack.errors import UsageError
from zluda_stack.program import command

if TYPE_CHECKING:
    from zluda_stack.keyring import Key

_SPANS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_LIMIT = click.IntRange(min=1, max=10**9)


@click.group()
def keys() -> None:
    """Give others keys of their own to a stack, with limits, and take them back.

    A running endpoint follows at once.
    """


@keys.command()
@click.argument("key_name", metavar="KEY")
@click.option("--expires", metavar="WHEN", help="30d, 12h, 2w, or a date (2027-01-31) in UTC.")
@click.option("--per-minute", type=_LIMIT, metavar="N", help="Requests in any 60 seconds.")
@click.option("--tokens-per-day", type=_LIMIT, metavar="N", help="Computed ones, by days of UTC.")
@settings_options("name")
@dry_run_option
@json_option
def add(
    key_name: str,
    expires: str | None,
    per_minute: int | None,
    tokens_per_day: int | None,
    flags: dict[str, object],
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make a key named KEY and print it, once: only its digest is kept.

    Limits are counted in the endpoint's memory; a restart begins them anew.
    """
    from zluda_stack import keys as store
    from zluda_stack.keyring import Key

    stack = _stack(flags)
    wanted = Key(
        digest=b"",
        name=_checked(key_name),
        expires=None if expires is None else _expiry(expires, datetime.now(timezone.utc)),
        per_minute=per_minute,
        tokens_per_day=tokens_per_day,
    )
    if dry_run:
        output.say(f"The key {key_name} would be added to {store.keyring_file(stack)}.")
        return
    made = store.add_key(stack, wanted)
    _publish(stack)
    if as_json:
        output.print_json({**_facts(wanted), "key": made})
        return
    output.say(made)
    output.note(f"This is the key {key_name}; it is not shown again.")


@keys.command("list")
@settings_options("name")
@json_option
def list_(flags: dict[str, object], *, as_json: bool) -> None:
    """Show the keys of a stack and their limits, without the keys."""
    from zluda_stack import keys as store

    stack = _stack(flags)
    found = store.further_keys(stack)
    if as_json:
        output.print_json([_facts(key) for key in found])
    elif found:
        columns = ("key", "expires", "per minute", "tokens per day")
        output.table(columns, [_row(key) for key in found])
    else:
        shown_by = command("connect env", stack)
        output.say(f"There is no key but the stack's own, which `{shown_by}` shows.")


@keys.command()
@click.argument("key_name", metavar="KEY")
@settings_options("name")
@dry_run_option
def rm(key_name: str, flags: dict[str, object], *, dry_run: bool) -> None:
    """Take the key KEY back. Requests that run with it may end."""
    from zluda_stack import keys as store

    stack = _stack(flags)
    if dry_run:
        output.say(f"The key {key_name} would be removed from {store.keyring_file(stack)}.")
        return
    store.remove_key(stack, key_name)
    _publish(stack)
    output.say(f"Removed the key {key_name}.")


def _stack(flags: dict[str, object]) -> str:
    """The stack that is meant. Raises EngineFailure when it was never started."""
    from zluda_stack import keys as store
    from zluda_stack.engines.common import never_started

    name = context.stack_name(flags)
    if store.read_key(name) is None:
        raise never_started(name)
    return name


def _publish(stack: str) -> None:
    from zluda_stack import paths
    from zluda_stack.engines.docker.secrets import publish_keys
    from zluda_stack.engines.docker.state import StackFolder

    publish_keys(StackFolder(paths.stack(stack)), stack)


def _checked(name: str) -> str:
    from zluda_stack.keyring import NAME

    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a key",
            "It has small letters, digits, dots, dashes and underscores, 64 at most.",
        )
    return name


def _expiry(text: str, now: datetime) -> datetime:
    """The moment that `text` names: a span from `now` on, or the beginning of a day in UTC."""
    span = re.fullmatch(r"([1-9][0-9]{0,3})([hdw])", text)
    try:
        if span is not None:
            return now + int(span[1]) * _SPANS[span[2]]
        moment = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=timezone.utc)
    except ValueError as error:
        raise UsageError(
            f"{text!r} is no time at which a key can expire",
            "Give a span (12h, 30d, 2w) or a date (2027-01-31).",
        ) from error
    if moment <= now:
        raise UsageError(f"{text} is over already", "Give a date that is still to come.")
    return moment


def _facts(key: Key) -> dict[str, object]:
    return {
        "name": key.name,
        "expires": key.expires,
        "expired": _is_over(key),
        "per_minute": key.per_minute,
        "tokens_per_day": key.tokens_per_day,
    }


def _row(key: Key) -> tuple[str, ...]:
    expires = "never" if key.expires is None else f"{key.expires:%Y-%m-%d %H:%M} UTC"
    limits = (key.per_minute, key.tokens_per_day)
    return (
        key.name,
        f"{expires} (over)" if _is_over(key) else expires,
        *("no limit" if limit is None else str(limit) for limit in limits),
    )


def _is_over(key: Key) -> bool:
    return key.expires is not None and key.expires <= datetime.now(timezone.utc)
