"""What the profiles are: by what a card computes, and what that asks of images and of the card."""

from __future__ import annotations

from msgspec import Struct

from zluda_stack.plan.types import Notice
from zluda_stack.settings import Configured, Profile


class Traits(Struct, frozen=True, kw_only=True):
    """How one profile differs from the others.

    `translates` is whether CUDA runs through ZLUDA, with all that this asks for (wave32 cards,
    NVIDIA's terms); else a ROCm build serves the card itself. `subject` stands in sentences for
    what supports a card, `verb` is how it does, `how` says by what a card computes. `image` and
    `compose` are the server's image and the compose file for a card, `cpu_image` and `on_cpu` those
    without one; `parts` names what these images are made of beside their combination. One that
    `has_page` serves a web page, and is always in containers.
    """

    translates: bool
    subject: str
    verb: str
    how: str
    image: str
    compose: str
    cpu_image: str = "llama-cpu"
    on_cpu: str = "compose/cpu.yml"
    parts: tuple[str, ...] = ()
    has_page: bool = False


_TRAITS: dict[Profile, Traits] = {
    "translated": Traits(
        translates=True,
        subject="ZLUDA",
        verb="supports",
        how="through ZLUDA",
        image="inference",
        compose="compose/inference.yml",
    ),
    "native": Traits(
        translates=False,
        subject="the native profile",
        verb="serves",
        how="by a native ROCm build",
        image="native",
        compose="compose/native.yml",
    ),
    "webui": Traits(
        translates=False,
        subject="the webui profile",
        verb="serves",
        how="by text-generation-webui on ROCm",
        image="webui",
        compose="compose/webui.yml",
        cpu_image="webui-cpu",
        on_cpu="compose/webui-cpu.yml",
        parts=("text-generation-webui", "python-standalone", "torch-rocm"),
        has_page=True,
    ),
}


PROFILES: tuple[Profile, ...] = tuple(_TRAITS)


def unused(configured: Configured, because: str) -> tuple[Notice, ...]:
    """That a profile was asked for, which counts for a card, where the CPU computes `because`.

    Nothing where the CPU was asked for too: then nobody expects a card.
    """
    settings = configured.settings
    cpu_asked_for = settings.gpu.strip().lower() == "none" or settings.engine == "embedded"
    if not configured.given("profile") or cpu_asked_for or traits(settings.profile).has_page:
        return ()
    return (
        Notice(
            code="profile-unused",
            message=f"the {settings.profile} profile was asked for, and it is of no effect: it "
            "computes on a card, and here the CPU does",
            hint=f"The reason: {because}. `zluda-stack doctor` says what this machine lacks.",
        ),
    )


def traits(profile: Profile) -> Traits:
    """How `profile` differs from the others."""
    return _TRAITS[profile]
