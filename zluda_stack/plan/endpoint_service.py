"""What the settings of the endpoint make of its container."""

from __future__ import annotations

from msgspec import structs

from zluda_stack.plan.endpoint import gateway_options
from zluda_stack.plan.types import EndpointPlan, HealthCheck, Service

CERTIFICATE = "tls_cert"
KEY = "tls_key"

_CAPTURE = "capture"
_FOLDER = "/capture"  # its owner in the image is the image's user (images/endpoint/Dockerfile.j2)


def with_settings(service: Service, endpoint: EndpointPlan) -> Service:
    """`service`, the endpoint's, as `endpoint` says that it is to serve."""
    options = gateway_options(endpoint)
    secrets, volumes, health = service.secrets, service.volumes, service.health
    if endpoint.tls is not None:
        options += (f"--tls-cert={_mounted(CERTIFICATE)}", f"--tls-key={_mounted(KEY)}")
        secrets += (CERTIFICATE, KEY)
        health = _over_tls(health)
    if endpoint.capture:
        options += (f"--capture={_FOLDER}",)
        volumes += (f"{_CAPTURE}:{_FOLDER}",)
    return structs.replace(
        service,
        command=service.command + options,
        secrets=secrets,
        volumes=volumes,
        health=health,
    )


def volumes_of(endpoint: EndpointPlan) -> tuple[str, ...]:
    """The named volumes that `with_settings` mounts."""
    return (_CAPTURE,) if endpoint.capture else ()


def environment_of(endpoint: EndpointPlan) -> dict[str, str]:
    """Where Compose finds the files of `endpoint`. The user of the container must read them."""
    if endpoint.tls is None:
        return {}
    return {
        "ZLUDA_STACK_TLS_CERT_FILE": endpoint.tls.certificate,
        "ZLUDA_STACK_TLS_KEY_FILE": endpoint.tls.key,
    }


def _over_tls(health: HealthCheck | None) -> HealthCheck | None:
    if health is None:
        return None
    return structs.replace(health, test=(*health.test, _mounted(CERTIFICATE)))


def _mounted(secret: str) -> str:
    return f"/run/secrets/{secret}"
