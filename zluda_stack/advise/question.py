"""What a piece of advice depends on, as words, and the texts that it is filled with."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from zluda_stack.plan.types import Notice

YesNo = Literal["yes", "no"]
Task = Literal["try", "production", "train", "port", "new", "serve"]
TASKS: tuple[Task, ...] = ("try", "production", "train", "port", "new", "serve")


class Situation(Struct, frozen=True, kw_only=True):
    """The card that is meant, and what serves it.

    `where` is here, named (by --gpu, and not here) or nowhere. `zluda` and `native` are none where
    there is no card; `native` is vulkan for a card without ROCm kernels. `nvidia` is whether such
    a card is on the bus, `trouble` whether the card is out of reach, because of `problem`.
    `free` is how much of its memory (bytes) a program can have, None where that is not known.
    What this machine lacks first is `containers` for containers, `on_card` for those with its card,
    and `cpu` for the model server on the CPU.
    """

    where: Literal["here", "named", "nowhere"]
    zluda: Literal["yes", "no", "none"]
    native: Literal["rocm", "vulkan", "none"]
    nvidia: YesNo = "no"
    trouble: YesNo = "no"
    target: str = ""
    card: str = "no AMD card"
    problem: str = ""
    free: int | None = None
    notes: tuple[str, ...] = ()
    containers: Notice | None = None
    on_card: Notice | None = None
    cpu: Notice | None = None


class Subject(Struct, frozen=True, kw_only=True):
    """What is asked about; a field is "-" where it says nothing.

    `form` is how a program comes, `verdict` that of `check`. `code` is whether sources hold CUDA
    or have a HIP build (unread: no CUDA was seen, and not all could be read), `stays` the worst
    that hipify leaves behind, `extension` whether PyTorch builds them. `packages` is how many of a
    Python project's packages have ROCm builds for the card (lacking: none of those that there
    are), `package` whether the program is such a package. `name` is as the user typed it; `found`
    is what was found, for people.
    """

    subject: Literal["overview", "program", "source", "python", "model"]
    name: str = ""
    form: Literal["binary", "library", "folder", "wheel", "package", "image", "-"] = "-"
    verdict: Literal["likely", "gaps", "cannot", "unjudged", "no-cuda", "replaced", "-"] = "-"
    code: Literal["cuda", "own-hip", "none", "unread", "-"] = "-"
    stays: Literal["none", "by-hand", "not-convertible", "-"] = "-"
    extension: Literal["yes", "no", "-"] = "-"
    packages: Literal["all", "some", "lacking", "none", "-"] = "-"
    package: Literal["yes", "no", "-"] = "-"
    fits: Literal["yes", "no", "unknown", "-"] = "-"
    found: tuple[str, ...] = ()


class Question(Struct, frozen=True, kw_only=True):
    """All that a decision sees."""

    situation: Situation
    subject: Subject
    task: Task | None = None

    def says(self, field: str) -> str:
        """The word that stands in the field `field` of any of the three."""
        if field == "task":
            return self.task or "none"
        holder = self.situation if hasattr(self.situation, field) else self.subject
        return str(getattr(holder, field))
