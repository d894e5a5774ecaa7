"""Read what is there of a planned stack: the engine's images, the model store, the endpoint.

An edge: it asks the engine and the network. Nothing that cannot be told raises; it is None.
"""

from __future__ import annotations

from zluda_stack import paths
from zluda_stack.engines import engine_of, saved_plan
from zluda_stack.engines.base import StackStatus, State
from zluda_stack.errors import StackError
from zluda_stack.host.facts import HostFacts, StackFacts
from zluda_stack.models.store import Store
from zluda_stack.plan.types import EndpointPlan, ModelPlan, Plan

_SECONDS = 2.0


def read_stack(plan: Plan, facts: HostFacts) -> StackFacts:
    """What is true now of the stack that `plan` describes on the host of `facts`."""
    status = _status(plan.name)
    asked = status is not None and status.state in (State.RUNNING, State.STARTING)
    problem = ask((saved_plan(plan.name) or plan).endpoint) if asked else None
    return StackFacts(
        engine=plan.engine,
        images_missing=_images_missing(plan, facts),
        model=plan.model.name,
        model_ready=_model_ready(plan.model) if plan.engine == "embedded" else None,
        state=None if status is None else status.state.value,
        endpoint_answers=(problem is None) if asked else None,
        endpoint_problem=problem,
    )


def ask(endpoint: EndpointPlan) -> str | None:
    """None when `endpoint` says that it is healthy, within a bound; else why not."""
    import http.client  # these take longer than all checks, and often there is nobody to ask

    from zluda_stack.tls import LocalConnection

    connection = LocalConnection(endpoint, _SECONDS)
    try:
        connection.request("GET", "/health")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return str(error) or type(error).__name__
    finally:
        connection.close()
    return None if status == http.HTTPStatus.OK else f"HTTP status {status}"


def _status(name: str) -> StackStatus | None:
    try:
        return engine_of(name).status(name)
    except StackError:
        return None  # the engine is away, which its own checks tell


def _images_missing(plan: Plan, facts: HostFacts) -> tuple[str, ...] | None:
    """The tags of the planned images that the engine lacks; None when it cannot be asked."""
    if plan.engine == "embedded" or facts.docker.problem is not None:
        return None
    from zluda_stack.engines.docker import containers
    from zluda_stack.engines.docker.served import served_images
    from zluda_stack.engines.docker.supply import here

    try:
        with containers.connect() as client:
            images = here(client, served_images(plan)).images
    except StackError:
        return None
    return tuple(one.image.tag for one in images if not one.known)


def _model_ready(model: ModelPlan) -> bool | None:
    """Whether the store has the whole model; None for a file of the user's."""
    if model.catalogued is None:
        return None
    return Store(paths.model_store()).get(model.catalogued) is not None
