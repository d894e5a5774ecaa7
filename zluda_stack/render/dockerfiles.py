"""A planned image as the text of its Dockerfile."""

from __future__ import annotations

import traceback

import jinja2

from zluda_stack import paths
from zluda_stack.errors import StackError
from zluda_stack.plan.types import ImagePlan


def render_dockerfile(image: ImagePlan) -> str:
    """images/<name>/Dockerfile.j2 with the values of `image`.

    Raises StackError, naming the template and the line, when it asks for a value that the plan
    does not hold or that nobody has verified (null in the catalogue).
    """
    name = f"{image.name}/Dockerfile.j2"
    try:
        body = (
            _environment()
            .get_template(name)
            .render(base=image.base, arguments=image.arguments, components=image.components)
        )
    except (jinja2.UndefinedError, _UnverifiedError) as error:
        raise StackError(
            f"missing value in images/{name}{_line(error)}: {error}",
            "`zluda-stack explain NAME` says what is known of a component or a base image.",
        ) from error
    except jinja2.TemplateNotFound as error:
        raise StackError(
            f"no template images/{error.name}", "Install zluda-stack again."
        ) from error
    return f"# Rendered by zluda-stack from images/{name} and the catalogue; change those.\n{body}"


class _UnverifiedError(Exception):
    """The template would print a null."""


def _refuse_null(value: object) -> object:
    if value is None:
        raise _UnverifiedError("the catalogue has null there, so it is unverified")
    return value


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(paths.images()),
        undefined=jinja2.StrictUndefined,
        finalize=_refuse_null,
        autoescape=False,  # noqa: S701 -- the text is a Dockerfile, not HTML
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _line(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename.endswith(".j2")]
    return f", line {lines[-1]}" if lines else ""
