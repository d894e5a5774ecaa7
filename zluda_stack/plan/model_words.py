"""Why a model is served as it is, with the numbers, and why it cannot be."""

from __future__ import annotations

from zluda_stack.catalog.schema import Client, ClientMode
from zluda_stack.errors import PlanRefused
from zluda_stack.models.architecture import Architecture
from zluda_stack.models.fit import BATCHES, COMPARED
from zluda_stack.plan.model_fit import Fitted, Room, longest_context, smallest
from zluda_stack.plan.profiles import traits
from zluda_stack.plan.types import Decision, ModelPlan, Notice
from zluda_stack.settings import Configured, Profile
from zluda_stack.units import gibibytes

# What the doctor asks a plan for: the decision on a model that was fitted, and a notice.
MEMORY = "memory"
PARTLY_ON_CARD = "partly-on-card"

_WITHIN_CEILING = "what the model was trained for, within the ceiling"


def largest(client: Client, mode: ClientMode, context: int | None) -> str:
    """Why a model was chosen that nobody named; `context` is what was asked for."""
    how = "" if mode == client.modes[0] else f" {mode.title}"
    wanted = f"the {mode.context_floor} tokens that {client.title}{how} needs"
    if context is not None:
        wanted = f"a context of {context} tokens"
    return f"the largest that calls tools and fits with {wanted}"


def default(*, unknown_memory: bool) -> str:
    """Why the catalogue's default model was taken."""
    return (
        "the default: the memory of the card is not known here, and --vram 24G names it"
        if unknown_memory
        else "the default"
    )


def as_asked(configured: Configured, model: ModelPlan, because: str) -> tuple[Decision, ...]:
    """The decisions on a model of which nobody knows whether it fits."""
    return (
        _decision(configured, "model", model.name, because),
        _decision(configured, "context", str(model.context), _WITHIN_CEILING),
    )


def in_machine(
    decisions: tuple[Decision, ...], context: int, total: int, memory: int
) -> tuple[Decision, ...]:
    """`decisions` on a model for the CPU, with the `context` that fits and the bytes it takes."""
    shortened = Decision(
        what="context", value=str(context), because="as much as this machine's memory has room for"
    )
    decided = (
        shortened if each.what == "context" and each.value != str(context) else each
        for each in decisions
    )
    because = f"this machine has {gibibytes(memory)}"
    return (*decided, Decision(what=MEMORY, value=gibibytes(total), because=because))


def in_room(
    configured: Configured, name: str, fitted: Fitted, room: Room, because: str
) -> tuple[Decision, ...]:
    """The decisions on a model that was fitted into `room`; `because` is why it and no other."""
    partly = fitted.gpu_layers is not None
    context = (
        "enough for a client; the rest of the card is for layers"
        if partly
        else "as much as fits with it, within the ceiling"
    )
    decided = [
        _decision(configured, "model", name, because),
        _decision(configured, "context", str(fitted.context), context),
        Decision(what=MEMORY, value=gibibytes(fitted.needs.total), because=_parts(fitted, room)),
    ]
    if fitted.batch != BATCHES[0] or fitted.cpu_moe:
        because = _why_the_batch(fitted)
        decided.append(Decision(what="batch", value=str(fitted.batch), because=because))
    if fitted.split:
        because = "no card holds it alone; one server has them all"
        value = " + ".join(map(str, fitted.split))
        decided.append(Decision(what="layers", value=value, because=because))
    if partly:
        because = "no more fit on the card; the others are left to the CPU"
        decided.append(Decision(what="layers", value=_layers(fitted), because=because))
    if fitted.cpu_moe:
        because = (
            f"all else is on the card; with fewer left out a context of {_floor(fitted)} tokens "
            "does not fit in such batches"
        )
        decided.append(Decision(what="experts outside", value=_experts(fitted), because=because))
    return tuple(decided)


def _why_the_batch(fitted: Fitted) -> str:
    """Why so many tokens of a prompt are computed at a time."""
    if fitted.batch == BATCHES[0]:
        return "the largest: what is left out is copied to the card once for each"
    if fitted.gpu_layers is not None:
        return f"more layers fit on the card than with {BATCHES[0]} tokens of a prompt at a time"
    left_out = ", whatever is left out" if fitted.cpu_moe else ""
    return (
        f"a context of {_floor(fitted)} tokens does not fit with {BATCHES[0]} tokens of a prompt "
        f"at a time{left_out}"
    )


def _floor(fitted: Fitted) -> int:
    return fitted.floor or fitted.context


def _layers(fitted: Fitted) -> str:
    """How many layers are on the card; llama.cpp counts the output as one, which is there first."""
    return f"{(fitted.gpu_layers or 1) - 1} of {len(fitted.model.layers)}"


def _experts(fitted: Fitted) -> str:
    """Of how many layers the experts are in the machine's memory, and what it holds in all."""
    layers = f"those of {fitted.cpu_moe} of {len(fitted.model.layers)} layers"
    return f"{layers}, {gibibytes(fitted.needs.host)}"


def nothing_for_coding(default: str, room: Room) -> Notice:
    """The default model is one that cannot work with a coding client."""
    return Notice(
        code="no-coding-model",
        message=f"no model of the catalogue that calls tools fits: {_free(room)}; {default} shows "
        "that the stack works, and little more",
        hint="Close what else uses the card, or name a model with --model: what does not fit is "
        "left to the CPU.",
    )


def spread_over_cards(name: str, count: int, profile: Profile) -> Notice:
    """One server has all cards."""
    server = "ZLUDA" if traits(profile).translates else "the HIP build"
    return Notice(
        code="spread-over-cards",
        message=f"{name} fits no card alone and is spread over {count}: nobody has shown that "
        f"{server} serves several cards in one process",
        hint="Name a smaller model, and each card gets a server of its own.",
    )


def partly_on_card(
    name: str, fitted: Fitted, room: Room, other: str | None, shorter: int | None
) -> Notice:
    """Layers or experts are left to the CPU.

    `other` is a model that fits as a whole, and `shorter` a context with which this one does.
    """
    left = _experts_outside(fitted) if fitted.cpu_moe else _layers_outside(fitted)
    return Notice(
        code=PARTLY_ON_CARD,
        message=f"{name} does not fit as a whole: {_free(room)}. {left}",
        hint=_other(other) if shorter is None else f"With --context {shorter} all of it fits.",
    )


def _layers_outside(fitted: Fitted) -> str:
    return (
        f"{_layers(fitted)} layers are computed there, the others "
        f"({gibibytes(fitted.needs.host)}) by the CPU, which is many times slower"
    )


def _experts_outside(fitted: Fitted) -> str:
    return (
        f"Experts stay in the machine's memory ({_experts(fitted)}): the CPU computes them for "
        "answers, and for prompts they are copied to the card again and again. Both are slower"
    )


def refusal(
    name: str, shape: Architecture, context: int, room: Room, other: str | None
) -> PlanRefused:
    """Why `name` cannot be served with `context`, and what could; `other` is a model that fits."""
    wanted = smallest(shape, context, room).total
    message = (
        f"{name} with a context of {context} tokens takes {gibibytes(wanted)} of memory, and "
        f"{_free(room)}"
    )
    shorter = longest_context(shape, context, room)
    if shorter is not None:
        larger = "" if other is None else f" {_other(other)}"
        return PlanRefused(message, f"With --context {shorter} it fits.{larger}")
    if room.machine is not None:
        message += f"; this machine's {gibibytes(room.machine)} do not hold the rest"
    return PlanRefused(message, _other(other))


def _decision(configured: Configured, what: str, value: str, otherwise: str) -> Decision:
    given = f"given ({configured.origin(what)})" if configured.given(what) else otherwise
    return Decision(what=what, value=value, because=given)


def _parts(fitted: Fitted, room: Room) -> str:
    found, shape = fitted.needs, fitted.model
    parts = {
        "weights": found.weights,
        "KV cache": found.cache + found.states,
        "computing": found.compute + found.scratch,
        "CUDA" if traits(room.profile).translates else "ROCm": found.runtime,
    }
    told = ", ".join(f"{what} {size / 2**30:.1f}" for what, size in parts.items())
    estimate = "" if shape.name in COMPARED else f"; an estimate for {shape.name} models"
    fullest = " on the fullest card" if fitted.split else ""
    return f"{told}{fullest}; {_free(room)}{_spare(room)}{estimate}"


def _free(room: Room) -> str:
    if len(room.cards) == 1:
        return f"{gibibytes(room.least)} are free on the card"
    sizes = " and ".join(f"{size / 2**30:.1f}" for size in room.cards)
    return f"{sizes} GiB are free on the cards"


def _spare(room: Room) -> str:
    """What of the free memory no model gets."""
    if not room.spare:
        return ""
    of_which = "of it" if len(room.cards) == 1 else "of each"
    return f", {room.spare >> 20} MiB {of_which} left to other programs"


def _other(name: str | None) -> str:
    if name is None:
        return "Close what else uses the card, or name a smaller model: `zluda-stack models list`."
    return f"{name} fits as a whole: --model {name}"
