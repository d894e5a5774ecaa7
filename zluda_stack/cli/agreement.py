"""Asking the user, where one can be asked."""

from __future__ import annotations

import sys

import click

from zluda_stack.errors import UsageError


def agrees(question: str, subject: str, hint: str) -> bool:
    """What the user answers to `question`; nothing but yes is taken for yes.

    Raises UsageError, which names `subject` and gives `hint`, where no terminal is there to ask.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(f"{subject}, and nobody is there to agree", hint)
    return click.confirm(question, default=False, err=True)
