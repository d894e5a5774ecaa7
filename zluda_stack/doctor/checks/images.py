"""The images: can they be built here, and are they there."""

from __future__ import annotations

from zluda_stack.doctor.checks.model import space_to_fetch
from zluda_stack.doctor.commands import again
from zluda_stack.doctor.subject import StageNeed, Subject
from zluda_stack.doctor.types import Check, Fix, Verdict, fail, ok, skip, warn
from zluda_stack.plan.building import TERMS
from zluda_stack.plan.types import ImagePlan

_GB = 1_000_000_000
_NO_IMAGES = "the embedded engine has no images"


def _to_build(subject: Subject) -> tuple[ImagePlan, ...]:
    """The planned images that the engine does not have, as far as that is known."""
    plan, stack = subject.plan, subject.facts.stack
    if plan is None:
        return ()
    served = {service.build for service in plan.services}
    missing = None if stack is None else stack.images_missing
    return tuple(
        image
        for image in plan.images
        if image.name in served and (missing is None or image.tag in missing)
    )


def _stages(subject: Subject) -> set[StageNeed]:
    """What has to be built; a stage that several images share counts once."""
    needs = (subject.build_needs.get(image.name, frozenset()) for image in _to_build(subject))
    return {stage for stages in needs for stage in stages}


def _terms(subject: Subject) -> Verdict:
    notice = subject.unmet(TERMS)
    if notice is None:
        return ok()
    return warn(
        "NVIDIA's terms for its CUDA toolkit were not accepted yet",
        "building for a GPU takes the toolkit, and only you can accept its terms",
        Fix(command="zluda-stack config set accept_cuda_eula true", then=notice.hint),
    )


def _kernels(subject: Subject) -> Verdict:
    gpu = subject.plan.gpu if subject.plan is not None else None
    known = subject.catalog.gpus.get(gpu.target) if gpu is not None else None
    if gpu is None or known is None or known.rocblas_kernels is not False:
        return ok()
    fallback = known.kernel_fallback
    reported = fallback is not None and fallback.target == gpu.kernel_target
    who = "users report that this works" if reported else "nobody has reported that this works"
    return warn(
        f"rocBLAS has no kernels for {gpu.target}: those of {gpu.kernel_target} are taken",
        f"the card then passes for {gpu.kernel_target} (HSA_OVERRIDE_GFX_VERSION="
        f"{gpu.hsa_override}); {who}, this project has not seen it",
        Fix(command=f"zluda-stack explain {gpu.target}"),
    )


def _disk(subject: Subject) -> Verdict:
    free = subject.facts.docker.free_bytes
    building = sum(stage.disk_gb for stage in _stages(subject))
    model = space_to_fetch(subject) / _GB
    if free is None or not building or free >= (building + model) * _GB:
        return ok()
    where = subject.facts.docker.data_root or "the engine's storage"
    return fail(
        f"{where} has {free / _GB:.0f} GB free, building the images takes about {building:.0f}"
        + (f", and the model {model:.0f}" if model >= 1 else ""),
        "the build would stop in its middle",
        Fix(
            command="docker buildx prune",
            then="`docker system df` shows what else takes space. It removes build caches only.",
        ),
    )


def _memory(subject: Subject) -> Verdict:
    have = subject.facts.memory_bytes
    needed = max((stage.memory_gb for stage in _stages(subject)), default=0)
    if have is None or have >= needed * _GB:
        return ok()
    return warn(
        f"this machine has {have / _GB:.0f} GB of memory, building takes up to {needed:.0f}",
        "the compiler may be killed (exit code 137)",
        Fix(command="swapon --show", then="Add swap, or build on a larger machine."),
    )


def _proxy(subject: Subject) -> Verdict:
    network = subject.facts.network
    given = (*network.proxy_variables, *network.ca_variables)
    if not given or not _to_build(subject):
        return ok()
    return warn(
        f"set in your environment: {', '.join(given)}",
        "builds run inside the engine, which has proxies of its own and trusts what the base "
        "images trust; docs/images.md says how to build behind a proxy that opens TLS",
        Fix(command="docker info --format '{{.HTTPProxy}} {{.HTTPSProxy}} {{.NoProxy}}'"),
    )


def _missing(subject: Subject) -> Verdict:
    plan, stack = subject.plan, subject.facts.stack
    if plan is None or not plan.images:
        return ok(_NO_IMAGES if plan is not None else "")
    if stack is None or stack.images_missing is None:
        return skip("the engine was not asked for them")
    if not stack.images_missing:
        return ok(f"{len(plan.images)} images are there")
    return warn(
        f"not built yet: {', '.join(stack.images_missing)}",
        "`zluda-stack up` builds them first; that takes hours where ZLUDA is among them",
        Fix(command=again(subject, "build"), then="`--dry-run` shows what it takes before."),
    )


CHECKS = (
    Check(id="images.no-kernels", look=_kernels),
    Check(id="images.disk-too-small", look=_disk),
    Check(id="images.little-memory", look=_memory),
    Check(id="images.behind-a-proxy", look=_proxy),
    Check(id="images.terms", look=_terms),
    Check(id="images.missing", look=_missing),
)
