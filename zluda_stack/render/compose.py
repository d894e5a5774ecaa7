"""A Plan's services as the text of a compose file."""

from __future__ import annotations

import yaml

from zluda_stack.plan.profiles import traits
from zluda_stack.plan.types import HealthCheck, ImagePlan, Plan, Service
from zluda_stack.plan.variables import by_program, required

_HEADER = """\
# Rendered by zluda-stack; `zluda-stack render` writes it again.
# What only the host knows comes from .env beside this file.
"""
_PROJECT = "zluda-stack"
_KEY_HASHES = "api_key_hashes"
# 30 MB a container: what a server writes in days.
_LOGGING = {"driver": "json-file", "options": {"max-size": "10m", "max-file": "3"}}


def compose_path(plan: Plan) -> str:
    """Where the compose file of `plan` lies in a rendered folder."""
    known = traits(plan.profile)
    return known.on_cpu if plan.gpu is None else known.compose


def render_compose(plan: Plan) -> str:
    """The compose file of `plan`; paths in it are relative to the folder compose/.

    The same for every host: see Plan.host_environment and render_env.
    """
    images = {image.name: image for image in plan.images}
    services = {service.name: _service(service, images) for service in plan.services}
    served = {service.build for service in plan.services}
    builds = {image.name: _build_only(image) for image in plan.images if image.name not in served}
    document = {
        "name": _PROJECT if plan.name == "default" else f"{_PROJECT}-{plan.name}",
        "services": builds | services,
        "volumes": {volume: {} for volume in plan.volumes},
        "secrets": {
            secret: {"file": _file_of(secret)}
            for service in plan.services
            for secret in service.secrets
        },
    }
    filled = {key: value for key, value in document.items() if value}
    return _HEADER + yaml.dump(filled, Dumper=_Dumper, sort_keys=False, width=1000)


def _file_of(secret: str) -> str:
    """The variable with its path. compose/host-env.sh makes keys, and knows no files of a user."""
    told = required if secret == _KEY_HASHES else by_program
    return told(f"ZLUDA_STACK_{secret.upper()}_FILE")


class _Dumper(yaml.SafeDumper):
    """YAML without anchors, and lists indented under their keys."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        super().increase_indent(flow, indentless=False)


def _service(service: Service, images: dict[str, ImagePlan]) -> dict[str, object]:
    image = images[service.build] if service.build else None
    entries: dict[str, object] = {
        "image": service.image,
        "build": _build(image) if image else None,
        "command": list(service.command),
        "user": service.user,
        "init": service.init,
        "environment": service.environment,
        "runtime": service.runtime,
        "devices": list(service.devices),
        "group_add": list(service.group_add),
        "volumes": list(service.volumes),
        "tmpfs": list(service.tmpfs),
        "ports": [_port(*published) for published in service.publish],
        "secrets": list(service.secrets),
        "depends_on": {name: {"condition": wait} for name, wait in service.depends_on.items()},
        "healthcheck": _healthcheck(service.health) if service.health else None,
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "restart": "no" if service.one_shot else "unless-stopped",
        "logging": _LOGGING,
        "stop_grace_period": f"{service.stop_grace}s",
    }
    return {key: value for key, value in entries.items() if value}


def _build_only(image: ImagePlan) -> dict[str, object]:
    """An image that others are built from: built on demand, never started."""
    return {"image": image.tag, "build": _build(image), "profiles": ["build"]}


def _build(image: ImagePlan) -> dict[str, object]:
    entries = {
        "context": "..",
        "dockerfile": f"images/{image.name}/Dockerfile",
        "target": image.name,
        "args": image.compose_arguments,
        "additional_contexts": image.contexts,
    }
    return {key: value for key, value in entries.items() if value}


def _port(address: str, host_port: str, container_port: int) -> dict[str, object]:
    # The long form, since an IPv6 address has no unambiguous place in ADDRESS:PORT:PORT.
    return {"host_ip": address, "published": host_port, "target": container_port}


def _healthcheck(health: HealthCheck) -> dict[str, object]:
    return {
        "test": list(health.test),
        "interval": f"{health.interval}s",
        "timeout": f"{health.timeout}s",
        "start_period": f"{health.start_period}s",
        "start_interval": f"{health.start_interval}s",
        "retries": health.retries,
    }
