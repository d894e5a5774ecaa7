"""The Jinja2 templates under images/, strict: a value that is missing or unverified is an error."""

from __future__ import annotations

import traceback
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from zluda_stack import paths
from zluda_stack.errors import StackError

if TYPE_CHECKING:
    import jinja2


def render_template(name: str, **values: object) -> str:
    """The template images/<name> with `values`.

    Raises StackError, naming the template and the line, when it asks for a value that is not
    given or that nobody has verified (null in the catalogue).
    """
    import jinja2  # many commands import what renders, and render nothing

    try:
        return _environment(paths.images()).get_template(name).render(**values)
    except (jinja2.UndefinedError, _UnverifiedError) as error:
        raise StackError(
            f"missing value in images/{_place(error) or name}: {error}",
            "`zluda-stack explain NAME` says what is known of a component or a base image.",
        ) from error
    except jinja2.TemplateNotFound as error:
        raise StackError(
            f"no template images/{error.name}", "Install zluda-stack again."
        ) from error


class _UnverifiedError(Exception):
    """The template would print a null."""


def _refuse_null(value: object) -> object:
    if value is None:
        raise _UnverifiedError("the catalogue has null there, so it is unverified")
    return value


@cache
def _environment(folder: Path) -> jinja2.Environment:
    """Reads templates from `folder`; each is compiled once."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        finalize=_refuse_null,
        autoescape=False,  # noqa: S701 -- the text is a Dockerfile or a script, not HTML
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _place(error: Exception) -> str:
    """The template and the line in which `error` was raised; empty when it was in none."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [frame for frame in frames if frame.filename.endswith(".j2")]
    if not places:
        return ""
    template = Path(places[-1].filename).relative_to(paths.images())
    return f"{template}, line {places[-1].lineno}"
