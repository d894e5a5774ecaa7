"""An adaptation as the text of a Dockerfile."""

from __future__ import annotations

import re

from zluda_stack.plan.adapt import Adaptation
from zluda_stack.render.templates import render_template

COLLECT = "_adapt/collect"


def render_adaptation(adaptation: Adaptation) -> str:
    """The Dockerfile that makes the adapted image. Raises StackError."""
    return render_template(
        "_adapt/adapted.j2",
        source=adaptation.source,
        parts=adaptation.parts,
        target=adaptation.target,
        environment={name: quoted(value) for name, value in adaptation.environment.items()},
        label=quoted(adaptation.source),
    )


def quoted(value: str) -> str:
    """`value` as one word of a Dockerfile, without substitution."""
    return '"' + re.sub(r'(["\\$])', r"\\\1", value) + '"'
