"""What an image is built from, as one key: the same key, the same image."""

from __future__ import annotations

import hashlib
import json

from zluda_stack.plan.types import ImagePlan
from zluda_stack.render.dockerfiles import render_dockerfile
from zluda_stack.render.images import copied_names
from zluda_stack.render.sources import read_source

# The user's word, which changes nothing in the image.
_NO_CONTENT = frozenset({"ACCEPT_CUDA_EULA"})


def content_key(image: ImagePlan) -> str | None:
    """The SHA-256, in hex, of all that `image` is built from; None when that is not fixed.

    Counted are its Dockerfile, which pins what it downloads, the files that it copies, the build
    arguments and contexts. A context that is a folder may hold something else tomorrow. Debian
    packages are as old as the build: apt's archives move, and no key can hold them.
    """
    if not all("@sha256:" in context for context in image.contexts.values()):
        return None
    copied: dict[str, str] = {}
    for name in sorted(copied_names(image)):
        copied |= read_source(name)
    arguments = {name: text for name, text in image.arguments.items() if name not in _NO_CONTENT}
    whole = (image.name, render_dockerfile(image), copied, arguments, image.contexts)
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
