"""Every check, in the order in which it is made: from the hardware up to the client."""

from __future__ import annotations

from zluda_stack.doctor.checks import (
    access,
    client,
    driver,
    endpoint,
    engine,
    hardware,
    images,
    kernel,
    model,
    nodes,
    permissions,
    settings,
)
from zluda_stack.doctor.types import Check, Layer

CHECKS: tuple[Check, ...] = (
    *hardware.CHECKS,
    *kernel.CHECKS,
    *driver.CHECKS,
    *nodes.CHECKS,
    *permissions.CHECKS,
    *engine.CHECKS,
    *access.CHECKS,
    *settings.CHECKS,
    *images.CHECKS,
    *model.CHECKS,
    *endpoint.CHECKS,
    *client.CHECKS,
)

# The card and the engine do not depend on each other; all that is above needs both.
_CARD = (Layer.HARDWARE, Layer.KERNEL, Layer.DRIVER, Layer.NODES, Layer.PERMISSIONS)
_ENGINE = (Layer.ENGINE, Layer.ACCESS)
CHAINS: tuple[tuple[Layer, ...], ...] = (
    _CARD,
    _ENGINE,
    (Layer.SETTINGS,),
    (Layer.IMAGES,),
    (Layer.MODEL,),
    (Layer.ENDPOINT,),
    (Layer.CLIENT,),
)
# Checks that judge the plan as a whole: a fault further down explains what they would tell.
ABOVE_ALL = frozenset({"settings.refused", "settings.unmet"})


def chain_of(layer: Layer) -> tuple[Layer, ...]:
    """The layers that stand on each other, `layer` among them."""
    return next(chain for chain in CHAINS if layer in chain)


def needs_all_below(check: Check) -> bool:
    """True when a fault in any lower layer explains what `check` would tell."""
    stands_alone = (*_CARD, *_ENGINE, Layer.SETTINGS)
    return check.id in ABOVE_ALL or check.layer not in stands_alone
