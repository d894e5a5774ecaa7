"""Whether a model fits the card that is meant, and this machine, as a plan would serve it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, structs

from zluda_stack.advise.question import Fit, Situation, Subject
from zluda_stack.catalog.schema import Catalog
from zluda_stack.models.architecture import Architecture
from zluda_stack.models.fit import COMPARED
from zluda_stack.models.fit_report import CardMemory
from zluda_stack.plan.clients import floors
from zluda_stack.plan.combination import combination_of, server_of, unable
from zluda_stack.plan.model_fit import (
    SPARE,
    Fitted,
    Room,
    fit_for_clients,
    room_on,
    smallest,
    usual_context,
)
from zluda_stack.plan.model_on_cpu import on_cpu
from zluda_stack.settings import Profile, Settings
from zluda_stack.units import gibibytes

_CPU = "CPU of this machine"


class Wanted(Struct, frozen=True, kw_only=True):
    """A model: its name as the user typed it, and the context in tokens that it was trained for.

    `shape` is None where what it takes is not known without its file.
    """

    name: str
    shape: Architecture | None
    trained: int | None


class Way(Struct, frozen=True):
    """Whether a model is served one way, and how or why not, for people; empty where unknown."""

    fit: Fit
    told: str = ""


class Weigher(Struct, frozen=True, kw_only=True):
    """What a plan is made of, beside the model and the card."""

    settings: Settings
    catalog: Catalog

    def of_model(self, wanted: Wanted, situation: Situation) -> Subject:
        """A model to serve, and whether it fits the card that is meant, and the CPU here.

        Raises PlanRefused for a combination of versions that there is not.
        """
        ways = {each: self._on_card(wanted, each, situation) for each in _profiles(situation)}
        cpu = self._on_cpu(wanted, situation.machine)
        told = [(name, way.told) for name, way in (*ways.items(), (_CPU, cpu)) if way.told]
        return Subject(
            subject="model",
            name=wanted.name,
            fits=_best([way.fit for way in ways.values()]),
            fits_zluda=ways["translated"].fit if "translated" in ways else "-",
            fits_native=ways["native"].fit if "native" in ways else "-",
            fits_cpu=cpu.fit,
            found=(*(f"{name}: {text}" for name, text in told), *self._unknown(wanted, situation)),
        )

    def _on_card(self, wanted: Wanted, profile: Profile, situation: Situation) -> Way:
        """As `up --profile` with `profile` serves it on the card."""
        shape, memory, wish = wanted.shape, situation.memory, self.settings.context
        if shape is None:
            return Way("unknown")
        server = unable(self.catalog, self._for(profile), shape.name)
        if server is not None:
            return Way("no", f"{server.title} cannot load {shape.name} models")
        if wish and wanted.trained and wish > wanted.trained:
            return Way("no", _too_long(wish, wanted.trained))
        if memory is None:
            return Way("unknown")
        room = self._room(memory, profile)
        fitted = fit_for_clients(shape, wanted.trained, wish, self.catalog, room)
        if fitted is None:
            context = self._least_context(wanted)
            return Way("no", _too_large(smallest(shape, context, room).total, context, memory))
        return Way("yes" if fitted.gpu_layers is None else "partly", _served(fitted))

    def _on_cpu(self, wanted: Wanted, memory: int | None) -> Way:
        """As `up --gpu none` serves it, with all of it in the machine's memory."""
        wish, trained = self.settings.context, wanted.trained
        if wanted.shape is None or memory is None:
            return Way("unknown")
        if wish and trained and wish > trained:
            return Way("no", _too_long(wish, trained))
        longest = usual_context(wish, trained, self.catalog)
        least = [min(floor, longest) for floor in floors(self.catalog)]
        found = on_cpu(wanted.shape, wish, least, longest, memory)
        if found.unmet:
            return Way("no", found.unmet[0].message)
        return Way(
            "yes",
            f"a context of {found.context} tokens, {gibibytes(found.total)} of the "
            f"{gibibytes(memory)} of memory",
        )

    def _unknown(self, wanted: Wanted, situation: Situation) -> Iterator[str]:
        """That nobody knows whether it fits the card, and what would tell."""
        profiles = tuple(_profiles(situation))
        if wanted.shape is None:
            yield "what it takes is known from its file only, and the file is not here"
        elif profiles and situation.memory is None:
            context = self._least_context(wanted)
            rooms = [self._room(_NOTHING, each) for each in profiles]
            least = min(smallest(wanted.shape, context, room).total for room in rooms)
            add = ": add --vram, as in --vram 24G" if situation.where == "named" else ""
            yield (
                f"all of it takes {gibibytes(least)} or more of a card, with a context of "
                f"{context} tokens; whether it fits {situation.card} is not known without the "
                f"card's memory{add}"
            )

    def _least_context(self, wanted: Wanted) -> int:
        """The context that a plan falls back to before it refuses."""
        wish = self.settings.context or floors(self.catalog)[-1]
        return usual_context(wish, wanted.trained, self.catalog)

    def _for(self, profile: Profile) -> Settings:
        """The settings with that profile; a combination is for the profile that it is set for."""
        if profile == self.settings.profile:
            return self.settings
        return structs.replace(self.settings, profile=profile, combination="auto")

    def _room(self, memory: CardMemory, profile: Profile) -> Room:
        combination = combination_of(self.catalog, self._for(profile))
        slots = server_of(self.catalog, combination).slots
        return room_on(memory, profile, slots, spare=0 if self.settings.context else SPARE)


_NOTHING = CardMemory(label="", memory=0)


def _profiles(situation: Situation) -> Iterator[Profile]:
    if situation.native == "rocm":
        yield "native"
    if situation.zluda == "yes":
        yield "translated"


def _best(fits: list[Fit]) -> Fit:
    order: tuple[Fit, ...] = ("yes", "partly", "unknown", "no")
    return next((one for one in order if one in fits), "unknown")


def _too_long(wish: int, trained: int) -> str:
    return f"the context of {wish} tokens that is set is longer than it was trained for ({trained})"


def _too_large(least: int, context: int, memory: CardMemory) -> str:
    rest = ""
    if memory.machine is not None:
        rest = f", and the machine's {gibibytes(memory.machine)} do not hold the rest"
    return (
        f"it does not fit: all of it takes {gibibytes(least)} with a context of {context} tokens, "
        f"{gibibytes(memory.free)} of the card are free{rest}"
    )


def _served(fitted: Fitted) -> str:
    layers, needs, name = len(fitted.model.layers), fitted.needs, fitted.model.name
    how = f"a context of {fitted.context} tokens, {gibibytes(needs.total)} of the card"
    if name not in COMPARED:
        how += f", an estimate for {name} models"
    outside = f"{gibibytes(needs.host)} in the machine's memory"
    if fitted.cpu_moe:
        return (
            f"it fits with the experts of {fitted.cpu_moe} of {layers} layers outside the card "
            f"({outside}), which is slower; {how}"
        )
    if fitted.gpu_layers is not None:
        on_card = fitted.gpu_layers - 1  # the output is one
        return (
            f"{on_card} of {layers} layers fit, and the CPU computes the others ({outside}), "
            f"which is many times slower; {how}"
        )
    return f"it fits: {how}"
