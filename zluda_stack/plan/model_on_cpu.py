"""Whether the machine's memory holds a model that the CPU computes, and with which context.

The arithmetic is that of `zluda_stack.models.fit`, with everything on the host. All of the memory
counts, and not what is free of it: while the stack runs its own model takes that, and the same
wish must give the same plan.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from zluda_stack.host.facts import HostFacts
from zluda_stack.models.architecture import Architecture
from zluda_stack.models.fit import BATCHES, CELLS, Serving, needs
from zluda_stack.plan.model_fit import Fitted, Place, whole
from zluda_stack.plan.types import Notice
from zluda_stack.settings import Settings
from zluda_stack.units import gibibytes

# What the doctor asks a plan for.
TOO_LARGE = "model-too-large"

# Left for the system and its programs where nobody asked for a certain context; our choice.
_SPARE = 512 * 2**20


class OnCpu(Struct, frozen=True, kw_only=True):
    """The context in tokens, the bytes that serving takes with it, and what is to be said."""

    context: int
    total: int
    unmet: tuple[Notice, ...] = ()
    warnings: tuple[Notice, ...] = ()


def memory_of(facts: HostFacts, settings: Settings) -> int | None:
    """The bytes of memory where the model is computed; None where that is not this machine."""
    elsewhere = facts.docker.remote or facts.docker.desktop
    return None if settings.engine == "docker" and elsewhere else facts.memory_bytes


def on_cpu(
    model: Architecture, wish: int | None, floors: Sequence[int], longest: int, memory: int
) -> OnCpu:
    """How `model` is served in `memory` bytes with the context `wish`, else one up to `longest`.

    Without a wish the context is as long as fits, and at least one of the `floors` (in tokens).
    What does not fit keeps its context, and `unmet` says what it takes.
    """
    if wish is None:
        fitted = whole(model, floors, longest, _within(memory - _SPARE))
        context = min(longest, floors[-1]) if fitted is None else fitted.context
    else:
        context = wish
    total = bytes_of(model, context)
    if total <= memory:
        return OnCpu(context=context, total=total)
    shorter = whole(model, (min(CELLS, longest),), longest, _within(memory))
    return OnCpu(context=context, total=total, unmet=(_too_large(context, total, memory, shorter),))


def bytes_of(model: Architecture, context: int) -> int:
    """What the CPU needs of the machine's memory: weights, caches and results of a batch.

    Its kernels have FlashAttention, and an output that is the embedding too is there once.
    """
    found = needs(model, Serving(context=context, batch=BATCHES[0], attention="flash"))
    weights = sum(tensor.bytes or 0 for tensor in model.tensors)
    return weights + found.cache + found.states + found.compute


def little_free(facts: HostFacts, settings: Settings, total: int) -> tuple[Notice, ...]:
    """That other programs hold what `total` bytes need now; nothing while the stack runs."""
    free = facts.memory_available_bytes
    running = any(one.name == settings.name for one in facts.running)
    if free is None or total <= free or running or memory_of(facts, settings) is None:
        return ()
    return (
        Notice(
            code="little-memory-free",
            message=f"the model takes {gibibytes(total)} of memory, and {gibibytes(free)} are "
            "free now: the system may swap, or end the server",
            hint="Close other programs, or name a smaller model or --context.",
        ),
    )


def _within(memory: int) -> Place:
    """All on the host, which the batch changes little."""

    def place(model: Architecture, context: int, batch: int) -> Fitted | None:
        if bytes_of(model, context) > memory:
            return None
        serving = Serving(context=context, batch=batch, attention="flash")
        return Fitted(model=model, context=context, batch=batch, needs=needs(model, serving))

    return place


def _too_large(context: int, total: int, memory: int, shorter: Fitted | None) -> Notice:
    hint = "Name a smaller model: `zluda-stack models list` shows their sizes."
    if shorter is not None:
        hint = f"With --context {shorter.context} it fits. {hint}"
    return Notice(
        code=TOO_LARGE,
        message=f"the model with a context of {context} tokens takes {gibibytes(total)} of "
        f"memory, and this machine has {gibibytes(memory)}",
        hint=hint,
    )
