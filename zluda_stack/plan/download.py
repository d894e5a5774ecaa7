"""What fetching a model takes, said before it is fetched."""

from __future__ import annotations

from zluda_stack.catalog.schema import Model
from zluda_stack.models.published import tensors_of
from zluda_stack.plan.types import Decision, Plan
from zluda_stack.units import gigabytes

DOWNLOAD = "download"
# A smaller one is over before anybody asks what it was.
_WORTH_A_WORD = 10**9
# As for a build: below, nobody needs to be asked; our choice.
_LARGE = 10 * 10**9


def size_of(model: Model) -> int:
    """The bytes of its files, computed where nobody has seen them; 0 where that cannot be."""
    return model.size or sum(tensor.bytes or 0 for tensor in tensors_of(model) or ())


def download_of(model: Model | None) -> tuple[Decision, ...]:
    """What fetching a large model of the catalogue takes, and its terms; else nothing."""
    size = 0 if model is None else size_of(model)
    if model is None or size < _WORTH_A_WORD:
        return ()
    about = "" if model.size else "about "
    terms = f"fetched unless it is here; licence {model.licence}"
    if model.restriction:
        terms += f" ({model.restriction.rstrip('.')})"
    if any(file.sha256 is None for file in model.files):
        terms += "; its sha256 is unverified: that of the first download is kept"
    return (Decision(what=DOWNLOAD, value=about + gigabytes(size), because=terms),)


def must_be_agreed_to(plan: Plan) -> bool:
    """True when the model of `plan` is so large that nobody should fetch it unasked."""
    model = plan.model.catalogued
    return model is not None and size_of(model) >= _LARGE
