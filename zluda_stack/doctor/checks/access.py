"""The engine's access: does what the engine runs on have this host's devices."""

from __future__ import annotations

from zluda_stack.doctor.commands import install, use_default_context
from zluda_stack.doctor.subject import Subject
from zluda_stack.doctor.types import Check, Fix, Verdict, fail, ok, warn

_ALL_READ_WRITE = 0o006
_TOOLKIT = {
    "passthrough-cdi": "sudo amd-ctk cdi generate --output=/etc/cdi/amd.json",
    "passthrough-runtime": "sudo amd-ctk runtime configure --runtime=docker",
}
_PLAIN_RUNTIMES = ("runc", "crun", "io.containerd.runc.v2")


def _docker_desktop(subject: Subject) -> Verdict:
    docker = subject.facts.docker
    named = "docker desktop" in (docker.operating_system or "").lower()
    if not (docker.desktop or named) or not subject.wants_gpu:
        return ok()
    return fail(
        "the engine is Docker Desktop",
        "it runs in a virtual machine, which has neither /dev/kfd nor /dev/dri",
        _own_engine(subject),
    )


def _remote(subject: Subject) -> Verdict:
    docker = subject.facts.docker
    if not docker.remote or not subject.wants_gpu:
        return ok()
    return fail(
        "the Docker context leads to an engine on another machine",
        "it can pass that machine's devices only, and the plan is for this one's card",
        _own_engine(subject),
    )


def _rootless(subject: Subject) -> Verdict:
    docker = subject.facts.docker
    keeps_groups = docker.emulated_by is not None
    if not subject.rootless or keeps_groups or not subject.wants_gpu or _open_to_all(subject):
        return ok()
    return fail(
        "the engine is rootless: it runs as you",
        "its containers see the nodes as group 65534, and Docker cannot keep the user's own groups",
        _own_engine(subject),
    )


def _open_to_all(subject: Subject) -> bool:
    """True when anybody may open the nodes, so that no group is needed."""
    facts = subject.facts
    nodes = [node for node in (facts.kfd, *facts.render_nodes) if node is not None]
    return bool(nodes) and all(
        (node.mode or 0) & _ALL_READ_WRITE == _ALL_READ_WRITE for node in nodes
    )


def _own_engine(subject: Subject) -> Fix:
    """Turn to the engine of this host that runs as root, or get one."""
    to_default = use_default_context(subject)
    if to_default is None or subject.facts.docker.context == "default":
        return install(subject, "docker")
    return to_default


def _selinux(subject: Subject) -> Verdict:
    security = subject.facts.security
    if security.selinux != "enforcing" or not subject.wants_gpu:
        return ok()
    if security.container_devices is not False:
        return ok("SELinux lets containers use devices" if security.container_devices else "")
    return warn(
        "SELinux is enforcing, and container_use_devices is off",
        "policies of before 2024 keep containers from render nodes; newer ones allow those of GPUs",
        Fix(command="sudo setsebool -P container_use_devices=1"),
    )


def _default_runtime(subject: Subject) -> Verdict:
    runtime = subject.facts.docker.default_runtime
    if runtime is None or runtime in _PLAIN_RUNTIMES or not subject.wants_gpu:
        return ok()
    return warn(
        f"the engine's default runtime is {runtime}",
        "it may add or hide devices by itself; the stack passes the chosen card's nodes by path",
        Fix(
            command="sudoedit /etc/docker/daemon.json",
            then='Take "default-runtime" out, then `sudo systemctl restart docker`.',
        ),
    )


def _passthrough(subject: Subject) -> Verdict:
    notice = subject.unmet(*_TOOLKIT)
    if notice is None:
        return ok()
    fix = Fix(command=_TOOLKIT[notice.code], then="Or leave --passthrough out.")
    return fail(notice.message, notice.hint, fix)


def _other_runtime(subject: Subject) -> Verdict:
    extra = [name for name in subject.facts.docker.runtimes if name == "amd"]
    specs = [spec.path for spec in subject.facts.cdi]
    if not (extra or specs):
        return ok()
    return ok(f"AMD's container runtime is here ({', '.join((*extra, *specs))}), and not needed")


CHECKS = (
    Check(id="access.docker-desktop", look=_docker_desktop),
    Check(id="access.remote-engine", look=_remote),
    Check(id="access.rootless", look=_rootless),
    Check(id="access.selinux", look=_selinux),
    Check(id="access.passthrough", look=_passthrough),
    Check(id="access.default-runtime", look=_default_runtime),
    Check(id="access.amd-runtime", look=_other_runtime),
)
