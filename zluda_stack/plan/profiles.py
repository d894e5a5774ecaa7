"""What the profiles are: by what a card computes, and what that asks of images and of the card."""

from __future__ import annotations

from msgspec import Struct

from zluda_stack.settings import Profile


class Traits(Struct, frozen=True, kw_only=True):
    """How one profile differs from the others.

    `translates` is whether CUDA runs through ZLUDA, with all that this asks for (wave32 cards,
    NVIDIA's terms); else a ROCm build serves the card itself. `subject` stands in sentences for
    what supports a card, `verb` is how it does, `how` says by what a card computes. `compose` is
    the compose file for a card, `on_cpu` that without one.
    """

    translates: bool
    subject: str
    verb: str
    how: str
    compose: str
    on_cpu: str = "compose/cpu.yml"


_TRAITS: dict[Profile, Traits] = {
    "translated": Traits(
        translates=True,
        subject="ZLUDA",
        verb="supports",
        how="through ZLUDA",
        compose="compose/inference.yml",
    ),
    "native": Traits(
        translates=False,
        subject="the native profile",
        verb="serves",
        how="by a native ROCm build",
        compose="compose/native.yml",
    ),
    "webui": Traits(
        translates=False,
        subject="the webui profile",
        verb="serves",
        how="by text-generation-webui on ROCm",
        compose="compose/webui.yml",
        on_cpu="compose/webui-cpu.yml",
    ),
}


def traits(profile: Profile) -> Traits:
    """How `profile` differs from the others."""
    return _TRAITS[profile]
