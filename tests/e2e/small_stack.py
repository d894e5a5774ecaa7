"""A container stack of three small services, for what the engine does with any of them.

The real images take minutes to build and to load. These have the same shape: a one-shot service,
a server that takes its time, and an endpoint in front that is healthy when its file is there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from tests.docker_engine import docker
from tests.e2e.conftest import free_port
from tests.unit import plans
from zluda_stack import paths
from zluda_stack.engines.base import StackStatus
from zluda_stack.engines.docker.compose import project_name
from zluda_stack.engines.docker.engine import DockerEngine
from zluda_stack.plan.types import EndpointPlan, HealthCheck, ModelPlan, Plan, Service, to_json
from zluda_stack.progress import Silent

BRING_UP = Path(__file__).with_name("bring_up.py")

# Answers 200 as long as /tmp/health is there. Compose reads $$ as $.
_SERVER = (
    "use IO::Socket::INET;"
    "$$s=IO::Socket::INET->new(LocalPort=>8080,Listen=>9,ReuseAddr=>1) or die;"
    "while($$c=$$s->accept){while(<$$c>){last if /^\\r?\\n$$/}"
    "$$r=-e '/tmp/health'?'200 OK':'503 Ill';print $$c \"HTTP/1.0 $$r\\r\\n\\r\\n\";close $$c}"
)
_ASK = (
    "use IO::Socket::INET; $$s=IO::Socket::INET->new('127.0.0.1:8080') or exit 1;"
    'print $$s "GET /health HTTP/1.0\\r\\n\\r\\n"; exit(<$$s> =~ / 200 / ? 0 : 1)'
)


def _sh(script: str) -> tuple[str, ...]:
    return ("sh", "-c", script)


def _server(name: str, image: str, script: str, **more: object) -> Service:
    return msgspec.structs.replace(
        Service(
            name=name,
            image=image,
            command=_sh(script),
            environment={"SERVER": _SERVER},
            tmpfs=("/tmp",),  # noqa: S108 -- a path in the container
            health=HealthCheck(
                test=("CMD", "perl", "-e", _ASK),
                interval=1,
                timeout=5,
                start_period=600,
                retries=2,
            ),
            stop_grace=1,
        ),
        **more,
    )


class SmallStack:
    """One stack under the XDG folders of the test, from the image `image`, with its own port."""

    def __init__(self, name: str, image: str) -> None:
        self.engine = DockerEngine()
        self.name = name
        self.port = free_port()
        self._image = image

    def plan(
        self,
        *,
        model: str = "small",
        fetch: str = "echo fetched",
        before: str = "echo loading",
        then: str = 'exec perl -e "$$SERVER"',
        port: int | None = None,
    ) -> Plan:
        """The plan; `before` is what the inference does before it serves, `then` the serving."""
        port = port or self.port
        services = (
            Service(name="model", image=self._image, command=_sh(fetch), one_shot=True),
            _server(
                "inference",
                self._image,
                f"{before}; touch /tmp/health; {then}",
                volumes=("models:/models",),
                depends_on={"model": "service_completed_successfully"},
            ),
            _server(
                "endpoint",
                self._image,
                'touch /tmp/health; exec perl -e "$$SERVER"',
                depends_on={"inference": "service_healthy"},
                publish=(("127.0.0.1", str(port), 8080),),
            ),
        )
        return msgspec.structs.replace(
            plans.plan(*services, name=self.name),
            endpoint=EndpointPlan(bind="127.0.0.1", port=port, host="127.0.0.1"),
            model=ModelPlan(
                name=model, catalogued=None, path=None, context=512, trained_context=None
            ),
        )

    def up(self, plan: Plan | None = None) -> StackStatus:
        return self.engine.up(plan or self.plan(), Silent())

    def down(self, *, volumes: bool = False) -> bool:
        return self.engine.down(self.name, Silent(), volumes=volumes)

    def status(self) -> StackStatus:
        return self.engine.status(self.name)

    def states(self) -> dict[str, str]:
        """The state of every service."""
        return {one.name: one.state.value for one in self.status().services}

    def container(self, service: str) -> str:
        return f"{project_name(self.name)}-{service}-1"

    def left_behind(self) -> list[str]:
        """Every container, network and volume of the stack that the engine still has."""
        label = f"label=com.docker.compose.project={project_name(self.name)}"
        found = []
        for kind, form in (
            ("container", "{{.Names}}"),
            ("network", "{{.Name}}"),
            ("volume", "{{.Name}}"),
        ):
            every = ("--all",) if kind == "container" else ()
            found += docker(kind, "ls", *every, "--filter", label, "--format", form).split()
        return found

    def bring_up_elsewhere(self, plan: Plan) -> subprocess.Popen[str]:
        """`up` in a process of its own, as a user's shell runs it; its steps on its stdout."""
        plan_file = paths.stack(self.name).parent / f"{self.name}.json"
        plan_file.parent.mkdir(parents=True, exist_ok=True)
        plan_file.write_bytes(to_json(plan))
        return subprocess.Popen(
            [sys.executable, str(BRING_UP), str(plan_file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ},
        )
