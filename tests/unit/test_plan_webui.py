"""The profile webui: text-generation-webui as the model server, with a page of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from msgspec import structs

from tests.unit.doctoring import examined, finding
from tests.unit.planning import card, codes, host, machine, plan_for, refusal
from zluda_stack.catalog.load import load
from zluda_stack.doctor.types import Status
from zluda_stack.engines.docker.secrets import write_secrets
from zluda_stack.engines.docker.state import Mark, StackFolder, running_stacks, write_mark
from zluda_stack.errors import HostProblem
from zluda_stack.files import write_atomic
from zluda_stack.host.facts import RunningStack
from zluda_stack.lock import pins_of_all
from zluda_stack.plan.changes import changes
from zluda_stack.plan.types import Plan, Service, to_json
from zluda_stack.render.compose import compose_path, render_compose
from zluda_stack.render.project import render_project
from zluda_stack.settings import Settings

CARD = "radeon-rx-7900-xtx"
LAPTOP = "laptop-without-gpu-or-docker"


def server(plan: Plan) -> Service:
    """The one model server of `plan`."""
    (found,) = (one for one in plan.services if one.build in ("webui", "webui-cpu"))
    return found


def on_cpu(**flags: object) -> Plan:
    return plan_for(machine(), profile="webui", gpu="none", **flags)


def test_a_card_is_planned_without_zluda_and_without_terms() -> None:
    plan = plan_for(host(CARD), profile="webui")
    assert "by text-generation-webui on ROCm" in plan.headline
    assert plan.images[0].tag == "zluda-stack/webui:gfx1100"
    assert plan.unmet == ()
    files = render_project(plan)
    assert compose_path(plan) == "compose/webui.yml"
    assert "compose/selftest.yml" not in files
    for path in ("compose/webui.yml", "images/webui/Dockerfile"):
        assert not re.search(r"zluda-cache|/opt/zluda(?!-stack)|CUDA", files[path]), path


def test_the_same_cards_are_served_as_by_the_native_profile() -> None:
    instinct = card("gfx90a", 0, gib=64)
    assert plan_for(machine(instinct), profile="webui").gpu is not None
    refused = refusal(machine(card("gfx803")), profile="webui", gpu="gfx803")
    assert "the webui profile does not serve gfx803" in refused
    report = examined(machine(card("gfx803")), profile="webui")
    assert finding(report, "hardware.unsupported-card").status is Status.WARN


def test_without_a_card_it_is_in_containers_all_the_same() -> None:
    plan = plan_for(machine(), profile="webui")
    assert plan.engine == "docker"
    assert compose_path(plan) == "compose/webui-cpu.yml"
    assert [image.name for image in plan.images] == ["webui-cpu", "endpoint"]
    assert "docker" in codes(plan_for(host(LAPTOP), profile="webui"))


def test_the_embedded_engine_is_refused() -> None:
    refused = refusal(machine(), profile="webui", engine="embedded")
    assert "the embedded engine has none" in refused


def test_the_endpoint_stands_before_it_and_knows_its_dialect() -> None:
    services = {one.name: one for one in on_cpu().services}
    assert "--upstream-dialect=openai" in services["endpoint"].command
    assert "--upstream=http://inference:8081" in services["endpoint"].command
    assert list(services) == ["model", "inference", "endpoint"]
    assert "models:/models:ro" in services["inference"].volumes
    assert "webui:/state" in services["inference"].volumes
    native = {one.name: one for one in plan_for(host(CARD), profile="native").services}
    assert not any(word.startswith("--upstream-dialect") for word in native["endpoint"].command)
    assert native["inference"].publish == ()


def test_only_the_page_is_published_and_on_this_machine_only() -> None:
    plan = on_cpu()
    ((address, port, inside),) = server(plan).publish
    assert (address, port, inside) == (
        "${ZLUDA_STACK_WEBUI_BIND:-127.0.0.1}",
        "${ZLUDA_STACK_WEBUI_PORT:-7860}",
        7860,
    )
    assert plan.host_environment["ZLUDA_STACK_WEBUI_BIND"] == "127.0.0.1"
    assert plan.page is not None
    assert plan.page.url == "http://127.0.0.1:7860"
    assert [each.value for each in plan.decisions if each.what == "page"] == [plan.page.url]


@pytest.mark.parametrize("bind", ["0.0.0.0", "192.168.1.7", "::"])  # noqa: S104
def test_a_page_that_asks_for_no_password_stays_on_this_machine(bind: str) -> None:
    refused = refusal(machine(), profile="webui", gpu="none", bind=bind)
    assert "asks for no password" in refused
    assert "--webui-login" in refused


def test_with_a_login_the_page_may_be_opened_to_the_network() -> None:
    plan = on_cpu(bind="0.0.0.0", webui_login="/etc/page")  # noqa: S104
    assert server(plan).secrets == ("webui_login",)
    assert plan.host_environment["ZLUDA_STACK_WEBUI_BIND"] == "0.0.0.0"  # noqa: S104
    assert plan.host_environment["ZLUDA_STACK_WEBUI_LOGIN_FILE"] == "/etc/page"
    secrets = yaml.safe_load(render_compose(plan))["secrets"]
    assert set(secrets) == {"api_key_hashes", "webui_login"}
    # The script that finds the host's values does not know where a user keeps a file.
    assert "zluda-stack render" in secrets["webui_login"]["file"]
    assert "host-env.sh" in secrets["api_key_hashes"]["file"]


def test_the_page_takes_the_next_free_port_and_keeps_its_own() -> None:
    taken = structs.replace(machine(), listening_ports=(7860,))
    elsewhere = plan_for(taken, profile="webui", gpu="none")
    assert elsewhere.page is not None
    assert elsewhere.page.port == 7861
    own = (RunningStack(name="default", port=8080, page_port=7860),)
    again = plan_for(structs.replace(taken, running=own), profile="webui", gpu="none")
    assert again.page is not None
    assert again.page.port == 7860
    wished = plan_for(taken, profile="webui", gpu="none", webui_port=7860)
    assert "page-port-taken" in codes(wished)


def test_up_again_keeps_the_page_where_it_is() -> None:
    running = (RunningStack(name="default", port=8080, page_port=7865),)
    there = structs.replace(machine(), listening_ports=(7865,), running=running)
    again = plan_for(there, profile="webui", gpu="none")
    assert again.page is not None
    assert (again.page.port, again.unmet) == (7865, ())
    moved = plan_for(there, profile="webui", gpu="none", name="second")
    assert moved.page is not None
    assert moved.page.port == 7860


def test_the_page_does_not_take_the_port_of_the_endpoint() -> None:
    plan = on_cpu(port=7860)
    assert plan.page is not None
    assert plan.page.port == 7861
    wished = on_cpu(port=9000, webui_port=9000)
    assert [one.message for one in wished.unmet] == [
        "port 9000 of the page is taken by the endpoint"
    ]


def test_a_stack_that_has_the_wished_port_of_the_page_is_named() -> None:
    other = (RunningStack(name="other", port=8080, page_port=9000),)
    there = structs.replace(machine(), listening_ports=(9000,), running=other)
    (lack,) = plan_for(there, profile="webui", gpu="none", webui_port=9000).unmet
    assert "your own stack 'other'" in lack.message
    found = finding(examined(there, profile="webui", gpu="none", webui_port=9000), "settings.unmet")
    assert found.status is Status.FAIL
    assert "--webui-port" in found.reason


def test_it_is_healthy_when_api_and_page_answer() -> None:
    health = server(on_cpu()).health
    assert health is not None
    assert health.test == ("CMD", "is-healthy", "8081", "7860/")


def test_several_cards_would_be_several_pages() -> None:
    cards = machine(card("gfx1100", 0), card("gfx1100", 1))
    refused = refusal(cards, profile="webui", gpu="all")
    assert "there is one page" in refused
    spread = machine(card("gfx908", 0, gib=32), card("gfx908", 1, gib=32))
    plan = plan_for(spread, profile="webui", gpu="all", model="llama-3.3-70b")
    assert server(plan).environment["DEVICES"] == "ROCm0,ROCm1"


def test_other_profiles_have_no_page() -> None:
    plan = plan_for(host(CARD), profile="native", webui_port=9000)
    assert plan.page is None
    assert b'"page":null' in to_json(plan).replace(b" ", b"")


def test_the_port_of_a_running_page_is_known_from_its_saved_plan(tmp_path: Path) -> None:
    folder = StackFolder(tmp_path / "other")
    write_atomic(folder.plan, to_json(on_cpu(name="other")))
    write_mark(folder, Mark(port=8080))
    assert running_stacks(tmp_path) == (RunningStack(name="other", port=8080, page_port=7860),)


def login_of(tmp_path: Path, text: str) -> str:
    """What a container gets of a login file that holds `text`. Raises HostProblem."""
    given = tmp_path / "login"
    given.write_text(text)
    folder = StackFolder(tmp_path / "stack")
    write_secrets(on_cpu(webui_login=str(given)), folder)
    return (folder.secrets / "webui_login").read_text()


def test_the_login_is_a_file_of_the_stack(tmp_path: Path) -> None:
    assert login_of(tmp_path, "\nann:secret one \n\nbob:x\n") == "ann:secret one\nbob:x\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "names nobody"),
        ("\n \n", "names nobody"),
        ("ann\n", "entry 1"),
        ("ann:a\nbob:\n", "entry 2"),
        ("ann:a:b\n", "entry 1"),
        ("ann:a,bob:b\n", "entry 1"),
    ],
)
def test_a_login_that_would_leave_the_page_open_is_refused(
    tmp_path: Path, text: str, told: str
) -> None:
    with pytest.raises(HostProblem, match=told):
        login_of(tmp_path, text)


def test_all_that_its_images_are_made_of_is_in_the_lock() -> None:
    found = {pin.name: pin for pin in pins_of_all(load(), Settings())}
    for name in ("text-generation-webui", "requirements/webui.txt"):
        assert found[name].identity
    names = [pin.where for pin in found.values() if pin.kind == "file"]
    assert any("torch-2.10.0" in name for name in names)
    assert any("python-build-standalone" in name for name in names)


def test_a_login_that_is_not_given_again_is_told() -> None:
    said = [str(one) for one in changes(on_cpu(webui_login="/etc/page"), on_cpu())]
    assert said == ["login of the page /etc/page -> none (webui_login is not set any more)"]
    assert "page http://127.0.0.1:7860 -> none" in " ".join(
        str(one) for one in changes(on_cpu(), plan_for(machine(), gpu="none", engine="docker"))
    )
