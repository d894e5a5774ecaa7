"""What `doctor` reads of a stack that runs, or does not."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from msgspec import structs

from tests.unit.command_line import settle, write
from tests.unit.planning import host, plan_for
from zluda_stack import locks, paths
from zluda_stack.doctor import stack
from zluda_stack.engines.embedded.state import SUPERVISOR, StackFolder
from zluda_stack.host.facts import StackFacts
from zluda_stack.models.store import Store
from zluda_stack.plan.types import EndpointPlan, Plan, to_json

LAPTOP = host("laptop-without-gpu-or-docker")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    settle(tmp_path, monkeypatch)
    return tmp_path


def at_port(port: int) -> EndpointPlan:
    return EndpointPlan(bind="127.0.0.1", port=port, host="127.0.0.1")


@contextmanager
def endpoint(status: int) -> Iterator[EndpointPlan]:
    """A real HTTP server on a free port that answers everything with `status`."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield at_port(server.server_port)
        server.shutdown()


def test_an_endpoint_that_is_healthy_has_no_problem() -> None:
    with endpoint(200) as healthy:
        assert stack.ask(healthy) is None


def test_what_an_endpoint_says_instead_is_told() -> None:
    with endpoint(503) as loading:
        assert stack.ask(loading) == "HTTP status 503"


def test_a_port_that_nothing_listens_on_is_told_as_such() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        problem = stack.ask(at_port(free.getsockname()[1]))
    assert problem is not None
    assert "refused" in problem


def test_an_endpoint_that_never_answers_is_left_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stack, "_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        problem = stack.ask(at_port(silent.getsockname()[1]))
    assert problem == "timed out"


def test_a_stack_that_was_never_started_is_stopped_and_its_endpoint_not_asked() -> None:
    assert stack.read_stack(plan_for(LAPTOP), LAPTOP) == StackFacts(
        engine="embedded", model="smollm2-135m", model_ready=False, state="stopped"
    )


def test_a_model_that_is_whole_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "get", lambda *_: Path("/store/blob"))
    assert stack.read_stack(plan_for(LAPTOP), LAPTOP).model_ready is True


def test_a_stack_that_lives_is_asked_where_it_really_listens() -> None:
    with endpoint(200) as healthy, alive(plan_for(LAPTOP, port=healthy.port)):
        told = stack.read_stack(plan_for(LAPTOP, port=1), LAPTOP)
    assert (told.state, told.endpoint_answers, told.endpoint_problem) == ("starting", True, None)


@contextmanager
def alive(plan: Plan) -> Iterator[None]:
    """A stack whose supervisor lives, as far as the kernel can tell."""
    folder = StackFolder(paths.stack(plan.name))
    write(folder.plan, to_json(plan))
    lock = locks.take(folder.lock(SUPERVISOR))
    assert lock is not None
    try:
        yield
    finally:
        os.close(lock)


def test_an_engine_that_is_away_leaves_the_images_untold() -> None:
    facts = host("radeon-without-docker")
    told = stack.read_stack(plan_for(facts), facts)
    assert told.images_missing is None
    assert told.model_ready is None


def test_an_engine_that_went_away_since_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    facts = host("r9700-gfx1201")
    assert stack.read_stack(plan_for(facts), facts).images_missing is None
    marked = plan_for(structs.replace(facts), name="marked")
    write(paths.stack("marked") / "docker.json", '{"port": 8080}')
    assert stack.read_stack(marked, facts).state is None
