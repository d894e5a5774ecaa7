"""The toolbox as files: its Dockerfiles, what they copy, and its compose file."""

from __future__ import annotations

from zluda_stack.plan.types import Plan
from zluda_stack.render.compose import render_compose
from zluda_stack.render.dockerfiles import render_dockerfile
from zluda_stack.render.project import copied_files, dockerfile

COMPOSE = "compose/toolbox.yml"


def render_toolbox(plan: Plan) -> dict[str, str]:
    """The files of the toolbox's `plan`: path relative to the output folder -> text.

    Raises StackError for a broken template.
    """
    files = {dockerfile(image): render_dockerfile(image) for image in plan.images}
    return {COMPOSE: render_compose(plan)} | files | copied_files(plan.images)
