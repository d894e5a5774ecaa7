"""resolve: host facts, settings and catalogue become one frozen Plan.

This is the only place where decisions are made. It is pure: no docker, no network, no /sys.
What it refuses it refuses here, before anything is built or started.
"""

from __future__ import annotations

from msgspec import structs

from zluda_stack.catalog.schema import Catalog, Evidence
from zluda_stack.errors import HostProblem, PlanRefused
from zluda_stack.host.facts import HostFacts
from zluda_stack.plan import combination, containers, endpoint_service, offline, page
from zluda_stack.plan.building import TERMS
from zluda_stack.plan.clients import fits
from zluda_stack.plan.download import DOWNLOAD, little_disk
from zluda_stack.plan.endpoint import choose_endpoint
from zluda_stack.plan.engine_needs import engine_for, engine_needs
from zluda_stack.plan.gpu import Choice, choose_gpu, describe
from zluda_stack.plan.gpu_memory import described
from zluda_stack.plan.images import cpu_images, gpu_images
from zluda_stack.plan.models_by_card import choose_models, models_anywhere
from zluda_stack.plan.passthrough import Passthrough, choose_passthrough
from zluda_stack.plan.profiles import traits, unused
from zluda_stack.plan.types import Decision, EngineName, ModelPlan, Notice, Plan, catalogued
from zluda_stack.plan.variant import choose_bases
from zluda_stack.settings import Configured, Profile, Settings

_SPREAD = "{} such cards are here, and one model server spreads the model over them"


def resolve(facts: HostFacts, configured: Configured, catalog: Catalog) -> Plan:
    """The plan for these inputs; the same inputs give a byte-identical plan.

    Raises PlanRefused, with the reason and the next step, for what cannot work anywhere or
    contradicts itself. What only this machine lacks is in `Plan.unmet` (see require_runnable).
    """
    settings = configured.settings
    page.require_containers(configured)
    choice = choose_gpu(facts, configured, catalog)
    choice = structs.replace(choice, gpus=described(choice.gpus, settings.vram))
    entry = choose_passthrough(facts, configured, choice.gpus)
    engine = engine_for(settings, on_card=bool(choice.gpus))
    in_docker = engine == "docker"
    models = offline.offered(facts, settings, catalog)
    if in_docker:
        models = combination.offered(models, settings)
    chosen = choose_models(facts, configured, models, choice.gpus)
    model, *others = chosen.models
    if in_docker:
        combination.require_loadable(catalog, settings, chosen.models, facts.local_model)
    if model.split:
        choice = structs.replace(choice, because=_SPREAD.format(len(choice.gpus)))
    page.require_one_server(configured, choice.gpus, split=bool(model.split))
    endpoint = choose_endpoint(facts, configured, catalog.defaults)
    own_page = page.choose_page(facts, configured, catalog, endpoint.endpoint)
    plan = Plan(
        name=settings.name,
        engine=engine,
        headline=_headline(choice, engine, settings.profile),
        gpus=choice.gpus,
        skipped=choice.skipped,
        model=model,
        others=tuple(others),
        endpoint=endpoint.endpoint,
        client=None if settings.client == "none" else settings.client,
        threads=settings.threads,
        decisions=(
            *_decisions(configured, choice, engine),
            *chosen.decisions,
            *entry.decisions,
            endpoint.decision,
            *(() if own_page is None else (own_page.decision,)),
        ),
        warnings=(() if choice.gpus else unused(configured, choice.because))
        + choice.warnings
        + chosen.warnings
        + little_disk(facts, settings, engine, catalogued(chosen.models))
        + entry.warnings
        + _unproven(choice, settings, catalog)
        + endpoint.warnings
        + _client_notices(catalog, configured, model),
        unmet=choice.unmet
        + entry.unmet
        + chosen.unmet
        + offline.with_offline_hints(settings, engine_needs(facts, engine, catalog.host))
        + offline.model_needs(facts, settings, chosen.models)
        + endpoint.unmet
        + (() if own_page is None else own_page.unmet)
        + _terms(choice, settings, catalog),
        offline=settings.offline,
        profile=settings.profile,
        page=None if own_page is None else own_page.page,
    )
    if in_docker:
        anywhere = models_anywhere(facts, configured, models)
        contained = _in_containers(plan, entry, anywhere, settings, catalog)
        contained = _with_page(contained, catalog.defaults.page_port)
        return _fetching_nothing(contained) if settings.offline else contained
    # Nothing of it is used here; a name that does not exist is told all the same.
    if configured.given("variant") or configured.given("base"):
        choose_bases(catalog, settings.variant, settings.base)
    if configured.given("combination"):
        combination.combination_of(catalog, settings)
    return plan


def _in_containers(
    plan: Plan,
    entry: Passthrough,
    anywhere: tuple[ModelPlan, ...],
    settings: Settings,
    catalog: Catalog,
) -> Plan:
    """The plan with what runs in containers, which is the same for every host.

    `anywhere` are the models as they are served where nothing is known of the cards.
    """
    bases = choose_bases(catalog, settings.variant, settings.base)
    host = containers.host_environment(
        plan.gpus, entry, plan.models, plan.endpoint, terms_accepted=settings.accept_cuda_eula
    )
    if plan.gpu is None:
        images = cpu_images(catalog, settings, bases)
        services = containers.cpu_services(catalog, images, anywhere[0], plan.threads)
        volumes = containers.CPU_VOLUMES
    else:
        images = gpu_images(catalog, settings, bases, plan.gpu)
        services = containers.gpu_services(
            catalog, images, anywhere, plan.gpus, entry, spread=bool(plan.model.split)
        )
        volumes = containers.gpu_volumes(images, 1 if plan.model.split else len(plan.gpus))
    *servers, endpoint = services
    return structs.replace(
        plan,
        images=images,
        services=(*servers, endpoint_service.with_settings(endpoint, plan.endpoint)),
        volumes=volumes + endpoint_service.volumes_of(plan.endpoint),
        host_environment=host | endpoint_service.environment_of(plan.endpoint),
        registry=settings.registry,
        combination=combination.combination_of(catalog, settings).name,
    )


def _with_page(plan: Plan, port: int) -> Plan:
    """The plan in containers with its web page, if it has one, on `port` of its container."""
    if plan.page is None:
        return plan
    return structs.replace(
        plan,
        services=page.with_page(plan.services, plan.page, port),
        volumes=plan.volumes + page.VOLUMES,
        host_environment=plan.host_environment | page.environment_of(plan.page),
    )


def _fetching_nothing(plan: Plan) -> Plan:
    """The plan in containers, whose model comes from this machine's store."""
    return structs.replace(
        plan,
        services=offline.fetching_nothing(plan.services),
        decisions=tuple(one for one in plan.decisions if one.what != DOWNLOAD),
    )


def require_runnable(plan: Plan) -> None:
    """Return when this machine can carry the plan out; else raise HostProblem for what it lacks."""
    if plan.unmet:
        first, *others = plan.unmet
        more = f" `zluda-stack plan` shows what else is lacking ({len(others)})." if others else ""
        raise HostProblem(first.message, first.hint + more)


def _headline(choice: Choice, engine: EngineName, profile: Profile) -> str:
    if choice.gpus:
        how = traits(profile).how
        return f"GPU {describe(choice.gpus)} {how} in Docker: {choice.because}."
    where = "in Docker" if engine == "docker" else "with the embedded engine"
    return f"CPU only, {where}: {choice.because}."


def _unproven(choice: Choice, settings: Settings, catalog: Catalog) -> tuple[Notice, ...]:
    """What runs on a GPU was put together by this project; how well that is proven is said."""
    chosen = combination.combination_of(catalog, settings)
    known = chosen.provenance
    if choice.gpu is None or known.evidence is not Evidence.UNPROVEN:
        return ()
    return (
        Notice(
            code="unproven",
            message=f"no one has shown that this combination works on your card. {known.note}",
            hint=f"`zluda-stack explain {chosen.name}` says what is known of it.",
        ),
    )


def _terms(choice: Choice, settings: Settings, catalog: Catalog) -> tuple[Notice, ...]:
    """NVIDIA's toolkit is a part of the build, under terms that only the user can accept."""
    translates = traits(settings.profile).translates
    if choice.gpu is None or settings.accept_cuda_eula or not translates:
        return ()
    where = catalog.components["cuda-toolkit"].terms
    return (
        Notice(
            code=TERMS,
            message="building for a GPU takes NVIDIA's CUDA toolkit, whose terms were not accepted",
            hint=f"Read them ({where}), then add --accept-cuda-eula.",
        ),
    )


def _decisions(configured: Configured, choice: Choice, engine: EngineName) -> tuple[Decision, ...]:
    def because(key: str, otherwise: str) -> str:
        return f"given ({configured.origin(key)})" if configured.given(key) else otherwise

    settings = configured.settings
    profiled = bool(choice.gpus) or traits(settings.profile).has_page
    without = {"profile": "" if profiled else "; it counts for a card, and here the CPU computes"}
    counts = {"profile": True, "combination": engine == "docker"}
    return (
        Decision(what="engine", value=engine, because=because("engine", choice.because)),
        *(
            Decision(
                what=key,
                value=getattr(settings, key),
                because=because(key, "") + without.get(key, ""),
            )
            for key, here in counts.items()
            if here and configured.given(key)
        ),
        Decision(
            what="gpu",
            value=choice.gpu.target if choice.gpu else "none",
            because=because("gpu", choice.because),
        ),
    )


def _client_notices(
    catalog: Catalog, configured: Configured, model: ModelPlan
) -> tuple[Notice, ...]:
    """Case C24: the client that was named must fit; of the others, those that do not are said."""
    wanted = configured.settings.client
    if wanted != "none":
        client = catalog.clients[wanted]
        problem = fits(client, client.modes[0], model.context)
        if problem is not None:
            raise PlanRefused(problem.message, problem.hint)
        return ()
    problems = (fits(client, client.modes[0], model.context) for client in catalog.clients.values())
    return tuple(problem for problem in problems if problem is not None)
