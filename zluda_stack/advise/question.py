"""What a piece of advice depends on, as words, and the texts that it is filled with."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from zluda_stack.models.fit_report import CardMemory
from zluda_stack.plan.types import Notice

YesNo = Literal["yes", "no"]
Fit = Literal["yes", "partly", "no", "unknown", "-"]
Task = Literal["try", "production", "train", "port", "new", "serve"]
TASKS: tuple[Task, ...] = ("try", "production", "train", "port", "new", "serve")


class Situation(Struct, frozen=True, kw_only=True):
    """The card that is meant, and what serves it.

    `where` is here, named (by --gpu, and not here) or nowhere: there is none, or none of which it
    is known what serves it. `zluda` and `native` are none then; `native` is vulkan for a card
    without ROCm kernels. `nvidia` is whether such a card is on the bus, `trouble` whether a card
    is here and out of reach, because of `problem`. `pick` is what --gpu needs to mean the card,
    empty where a plan takes it anyway; `vram` is the memory that the user named, in bytes.
    `memory` is the card's, `machine` what a model on the CPU can have (bytes), both None where not
    known; `default_model` is what the CPU serves where nobody names a model. What this machine
    lacks first is `containers` for containers, `on_card` for those with its card, and `cpu` for
    the model server on the CPU.
    """

    where: Literal["here", "named", "nowhere"]
    zluda: Literal["yes", "no", "none"]
    native: Literal["rocm", "vulkan", "none"]
    nvidia: YesNo = "no"
    trouble: YesNo = "no"
    target: str = ""
    card: str = "no AMD card"
    problem: str = ""
    pick: str = ""
    vram: int | None = None
    memory: CardMemory | None = None
    machine: int | None = None
    default_model: str = ""
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
    are), `package` whether the program is such a package. `fits` is the best of what a model does
    on the card (partly: layers are left to the CPU), `fits_zluda`, `fits_native` and `fits_cpu`
    what it does one way and on the CPU of this machine. `name` is as the user typed it; `found`
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
    fits: Fit = "-"
    fits_zluda: Fit = "-"
    fits_native: Fit = "-"
    fits_cpu: Fit = "-"
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
