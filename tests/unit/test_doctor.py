"""What `doctor` finds, which check is the cause, and what it never suggests."""

from __future__ import annotations

import re
import shlex

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.unit.any_host import HOSTS
from tests.unit.doctoring import catalog, examined, finding, ids
from tests.unit.planning import CASES, configured, host
from zluda_stack.doctor.examine import findings
from zluda_stack.doctor.registry import CHECKS
from zluda_stack.doctor.report import details, layer_lines
from zluda_stack.doctor.subject import Subject
from zluda_stack.doctor.types import Check, Finding, Fix, Layer, Status, Verdict, fail, ok, warn
from zluda_stack.errors import ExitCode
from zluda_stack.host.facts import DockerFacts, HostFacts, LocalModelFacts, RunningStack, StackFacts
from zluda_stack.plan.building import TERMS
from zluda_stack.plan.types import Notice

RADEON = "radeon-rx-7900-xtx"
LAPTOP = "laptop-without-gpu-or-docker"
SNAPSHOTS = sorted(path.stem for path in CASES.glob("*.json"))
FIX = Fix(command="true")

FLAGS = {
    "gpu": st.sampled_from(["auto", "none", "all", "gfx1100", "gfx90a", "0"]),
    "engine": st.sampled_from(["auto", "docker", "embedded"]),
    "client": st.sampled_from(["none", "claude"]),
}

# Each case that users ran into, the machine it is told of, and the check that is to tell it.
RULES = [
    ("C01", "kfd-gid-148", "permissions.not-in-group", Status.WARN),
    ("C02", "host-without-render-group", "permissions.not-in-group", Status.WARN),
    ("C04", "two-visible-devices-variables", "settings.visible-devices", Status.WARN),
    ("C05", "override-names-a-target", "settings.override-form", Status.FAIL),
    ("C06", "override-is-empty", "settings.override-empty", Status.WARN),
    ("C07", "mi210-with-old-override", "hardware.unsupported-card", Status.WARN),
    ("C07", "rx-580-gfx803", "hardware.unsupported-card", Status.WARN),
    ("C09", "wsl2", "hardware.wsl2", Status.WARN),
    ("C10", "docker-desktop-on-linux", "access.docker-desktop", Status.FAIL),
    ("C11", "podman-only", "engine.podman-only", Status.FAIL),
    ("C11", "podman-as-docker", "engine.podman-emulation", Status.WARN),
    ("C12", "unraid-780m-without-dri", "nodes.dri-missing", Status.FAIL),
    ("C12", "amd-card-without-kfd", "nodes.kfd-missing", Status.FAIL),
    ("C13", "strix-halo-nomodeset", "kernel.nomodeset", Status.FAIL),
    ("C18", "disk-with-30-gb-free", "images.disk-too-small", Status.FAIL),
    ("C27", "rx-6700-xt-gfx1031", "images.no-kernels", Status.WARN),
    ("C27", "igpu-gfx1036-alone", "hardware.no-kernels", Status.WARN),
]


@pytest.mark.parametrize(("case", "machine", "check", "status"), RULES)
def test_a_known_trouble_is_told_by_its_check(
    case: str, machine: str, check: str, status: Status
) -> None:
    told = finding(examined(machine), check)
    assert told.status is status, case
    assert told.evidence
    assert told.reason


def test_the_discrete_card_is_named_and_the_other_with_the_reason() -> None:
    told = finding(examined("igpu-gfx1036-and-dgpu-gfx1201"), "hardware.choice")
    assert told.status is Status.OK
    assert re.match(r"gfx1201 .*; not gfx1036 .*: rocBLAS has no kernels", told.evidence)


def test_a_card_without_kernels_is_told_how_others_are_tried_and_that_this_is_unproven() -> None:
    told = finding(examined("radeon-860m-gfx1152"), "hardware.no-kernels")
    assert "gfx1152" in told.evidence
    assert "11.5.0 for gfx1150: unproven" in told.reason
    tried = examined("radeon-860m-gfx1152", hsa_override="11.5.0")
    assert finding(tried, "hardware.no-kernels").status is Status.OK
    borrowed = finding(tried, "images.no-kernels")
    assert "those of gfx1150 are taken" in borrowed.evidence
    assert "nobody has reported" in borrowed.reason
    reported = finding(examined("rx-6700-xt-gfx1031"), "images.no-kernels")
    assert "users report" in reported.reason


@pytest.mark.parametrize("override", ["9.0.0", "10.3.1", "11.0.9"])
def test_an_override_that_cannot_serve_is_told_with_the_way_to_be_rid_of_it(override: str) -> None:
    environment = {"HSA_OVERRIDE_GFX_VERSION": override}
    found = examined(structs.replace(host(RADEON), environment=environment))
    assert ids(found, Status.FAIL) == ["settings.override-target"]
    assert found.cause is not None
    assert found.cause.exit_code == ExitCode.REFUSED
    assert found.cause.fix is not None
    assert found.cause.fix.command == "unset HSA_OVERRIDE_GFX_VERSION"
    on_cpu = examined(structs.replace(host("vega-apu-gfx90c"), environment=environment))
    assert ids(on_cpu, Status.FAIL) == []


def test_groups_are_joined_by_number_whatever_their_names() -> None:
    told = finding(examined("kfd-gid-148"), "permissions.gids")
    assert "148 and 993 by number" in told.evidence


def test_an_apu_is_judged_by_the_memory_it_can_use_and_not_by_its_carve_out() -> None:
    large = LocalModelFacts(path="/m/large.gguf", size=70 << 30, context_length=32768)
    roomy = structs.replace(host("strix-halo-gfx1151-small-carveout"), local_model=large)
    assert ids(examined(roomy, model="/m/large.gguf"), Status.WARN) == ["images.terms"]
    small = structs.replace(host("radeon-890m-gfx1150"), local_model=large)
    assert "model.too-large" in ids(examined(small, model="/m/large.gguf"), Status.WARN)


@pytest.mark.parametrize(
    ("port", "running", "expected"),
    [
        (None, (), (Status.OK, "port 8081: the default 8080 is taken")),
        (8080, (), (Status.FAIL, "port 8080 is taken by another program")),
        (8080, (RunningStack(name="default", port=8080),), (Status.OK, "")),
    ],
)
def test_a_taken_port_matters_only_when_it_was_asked_for_and_is_not_ours(
    port: int | None, running: tuple[RunningStack, ...], expected: tuple[Status, str]
) -> None:
    facts = structs.replace(host("port-8080-taken"), running=running)
    found = examined(facts, **({} if port is None else {"port": port}))
    taken, moved = finding(found, "endpoint.port-taken"), finding(found, "endpoint.port-moved")
    assert (taken.status, taken.evidence or moved.evidence) == expected


@pytest.mark.parametrize(
    ("bind", "status"),
    [("127.0.0.1", Status.OK), ("0.0.0.0", Status.WARN)],  # noqa: S104
)
def test_an_endpoint_that_others_reach_is_told(bind: str, status: Status) -> None:
    assert finding(examined(LAPTOP, bind=bind), "endpoint.exposed").status is status


@pytest.mark.parametrize("wish", ["gfx90a", "gfx803", "rx7900", "gfx110"])
def test_a_wish_that_cannot_be_met_is_told_with_the_plans_words(wish: str) -> None:
    found = examined(RADEON, gpu=wish)
    assert found.refusal is not None
    told = finding(found, "settings.refused")
    assert (told.evidence, told.reason) == (found.refusal.message, found.refusal.hint)
    assert found.cause == told
    assert told.exit_code == ExitCode.REFUSED


def test_a_client_that_does_not_fit_is_told_as_such_and_once() -> None:
    found = examined(LAPTOP, client="claude")
    assert ids(found, Status.FAIL) == ["client.context-too-small"]
    assert "24576" in finding(found, "client.context-too-small").evidence


def test_a_card_that_leads_to_the_cpu_is_not_blamed_for_what_else_is_refused() -> None:
    for machine in ("radeon-hd-7850", "vega-apu-gfx90c"):
        found = examined(machine, client="claude")
        assert ids(found, Status.FAIL) == ["client.context-too-small"]


def test_a_gpu_that_is_not_here_is_told() -> None:
    for machine, wish, cause in (
        (LAPTOP, "gfx1100", "hardware.asked-gpu-missing"),
        ("wsl2", "gfx1100", "hardware.wsl2"),
        ("v520-cloud-kernel-without-amdgpu", "gfx1011", "driver.not-loaded"),
    ):
        assert ids(examined(machine, gpu=wish), Status.FAIL)[0] == cause


def test_who_wants_no_gpu_is_not_told_of_it() -> None:
    for flags in ({"gpu": "none"}, {"engine": "embedded"}):
        assert ids(examined("strix-halo-nomodeset", **flags), Status.FAIL) == []


def test_docker_desktop_serves_who_wants_no_gpu() -> None:
    found = examined("docker-desktop-on-linux", engine="docker", gpu="none")
    assert ids(found, Status.FAIL) == []


def test_the_engines_own_machine_is_offered_where_it_has_a_context() -> None:
    told = finding(examined("rootless-docker"), "access.rootless")
    assert told.fix is not None
    assert (told.fix.command, told.fix.safe) == ("docker context use default", True)
    alone = host("rootless-docker")
    alone = structs.replace(alone, docker=structs.replace(alone.docker, contexts=("rootless",)))
    told = finding(examined(alone), "access.rootless")
    assert told.fix is not None
    assert "install" in told.fix.command


@pytest.mark.parametrize(
    ("distribution", "word"),
    [
        ("Ubuntu 24.04.3 LTS", "docker-compose-v2"),
        ("Debian GNU/Linux 13 (trixie)", "docker-compose-plugin"),
        ("Fedora Linux 42 (Workstation Edition)", "dnf"),
        ("CachyOS", "pacman"),
        ("openSUSE Tumbleweed", "zypper"),
        ("Unraid OS 7.1", "https://docs.docker.com"),
        (None, "https://docs.docker.com"),
    ],
)
def test_a_fix_speaks_the_language_of_the_distribution(distribution: str | None, word: str) -> None:
    facts = structs.replace(host("docker-without-compose"), distribution=distribution)
    told = finding(examined(facts), "engine.compose-missing")
    assert told.fix is not None
    assert word in told.fix.command


def test_a_docker_that_does_not_answer_is_not_called_missing() -> None:
    silent = DockerFacts(problem="docker did not answer within 10 s")
    found = examined(structs.replace(host("radeon-without-docker"), docker=silent))
    assert ids(found, Status.FAIL) == ["engine.not-answering"]


def test_podmans_own_compose_counts_where_it_is_the_docker_command() -> None:
    facts = host("podman-as-docker")
    assert facts.docker.compose_version is None
    assert finding(examined(facts), "engine.compose-missing").evidence == "Compose 2.39.1"
    lacking = examined(structs.replace(facts, podman=None))
    assert ids(lacking, Status.FAIL) == ["engine.compose-missing"]


def test_a_group_that_the_session_lacks_needs_no_usermod() -> None:
    told = finding(examined("session-older-than-group"), "permissions.old-session")
    assert told.fix is not None
    assert told.fix.command == "newgrp render"


def test_a_closed_node_stops_an_engine_that_runs_as_the_user() -> None:
    facts = host("podman-as-docker")
    assert facts.kfd is not None
    shut = structs.replace(facts.kfd, accessible=False, gid=148)
    found = examined(structs.replace(facts, kfd=shut))
    assert finding(found, "permissions.not-in-group").status is Status.FAIL


@pytest.mark.parametrize(
    ("problem", "bind", "word"),
    [
        ("timed out", "192.168.7.4", "ufw allow 8080/tcp"),
        ("timed out", "127.0.0.1", "restart"),
        ("Connection refused", "192.168.7.4", "restart"),
    ],
)
def test_a_firewall_is_suspected_only_where_one_can_be(problem: str, bind: str, word: str) -> None:
    facts = host("endpoint-hangs")
    assert facts.stack is not None
    stack = structs.replace(facts.stack, endpoint_problem=problem)
    told = finding(examined(structs.replace(facts, stack=stack), bind=bind), "endpoint.silent")
    assert told.fix is not None
    assert word in told.fix.command
    assert told.exit_code == ExitCode.ENGINE


def test_a_fix_repeats_what_this_run_was_asked_for() -> None:
    facts = structs.replace(host(RADEON), listening_ports=(8080,))
    facts = structs.replace(
        facts, stack=StackFacts(engine="docker", images_missing=("zluda-stack/endpoint:1",))
    )
    found = examined(facts, engine="docker", gpu="none", accept_cuda_eula=True)
    told = finding(found, "images.missing")
    assert told.fix is not None
    assert told.fix.command == ("zluda-stack build --engine docker --gpu none --accept-cuda-eula")
    taken = finding(examined(facts, name="two", port=8080), "endpoint.port-taken")
    assert taken.fix is not None
    assert taken.fix.command == "zluda-stack up --name two --port 8081"


def test_a_model_that_the_disk_cannot_hold_is_told() -> None:
    facts = structs.replace(host(LAPTOP), models_free_bytes=1000)
    assert ids(examined(facts), Status.FAIL) == ["model.no-room"]
    here = StackFacts(engine="embedded", model="smollm2-135m", model_ready=True)
    assert ids(examined(structs.replace(facts, stack=here)), Status.FAIL) == []
    radeon = host(RADEON)
    full = structs.replace(radeon, docker=structs.replace(radeon.docker, free_bytes=10 << 30))
    built = structs.replace(full, stack=StackFacts(engine="docker", images_missing=()))
    told = finding(examined(built), "model.no-room")
    assert (told.status, "Docker's disk" in told.evidence) == (Status.FAIL, True)


def test_layers_that_are_left_to_the_cpu_are_told() -> None:
    found = examined("rx-7600-gfx1102", model="qwen3-coder-30b-a3b")
    told = finding(found, "model.too-large")
    assert told.status is Status.WARN
    assert "of 48 layers" in told.evidence


def test_a_model_that_the_memory_does_not_hold_fails_before_it_is_fetched() -> None:
    facts = structs.replace(host("laptop-without-gpu-or-docker"), memory_bytes=16 << 30)
    told = finding(examined(facts, model="seed-oss-36b"), "model.too-large")
    assert told.status is Status.FAIL
    assert "this machine has 16.0 GiB" in told.evidence


def test_the_wheel_of_a_model_counts_for_the_disk_as_it_does_for_up() -> None:
    facts = structs.replace(host(LAPTOP), models_free_bytes=100_000_000)
    told = finding(examined(facts), "model.no-room")
    assert told.status is Status.FAIL
    assert "takes 191.2 MB for a while" in told.evidence
    enough = structs.replace(facts, models_free_bytes=192_000_000)
    assert ids(examined(enough), Status.FAIL) == []


def test_the_model_counts_beside_the_images_on_dockers_disk() -> None:
    facts = host("disk-with-30-gb-free")
    assert (
        ", and the model 22"
        in finding(
            examined(facts, model="seed-oss-36b", context=2048), "images.disk-too-small"
        ).evidence
    )
    between = structs.replace(facts, docker=structs.replace(facts.docker, free_bytes=62 * 10**9))
    found = examined(between, model="seed-oss-36b", context=2048)
    assert finding(found, "images.disk-too-small").status is Status.FAIL


def test_only_what_has_to_be_built_counts_for_the_disk() -> None:
    facts = host("disk-with-30-gb-free")
    built = StackFacts(engine="docker", images_missing=())
    assert ids(examined(structs.replace(facts, stack=built)), Status.FAIL) == []


def test_another_vendors_card_beside_ours_is_said_to_stay_out() -> None:
    told = finding(examined("rx-7900-xtx-beside-nvidia"), "hardware.nvidia-beside-amd")
    assert "RTX 4090" in told.evidence
    alone = finding(examined("nvidia-only"), "hardware.no-amd-gpu")
    assert "CUDA build" in alone.evidence


@pytest.mark.parametrize(("rootless", "status"), [(True, Status.WARN), (False, Status.OK)])
def test_access_by_the_screens_list_is_not_enough_for_an_engine_that_runs_as_you(
    *, rootless: bool, status: Status
) -> None:
    facts = host("podman-as-docker")
    assert facts.kfd is not None
    seat = structs.replace(facts.kfd, acl=True, gid=148)
    docker = structs.replace(facts.docker, rootless=rootless)
    found = examined(structs.replace(facts, kfd=seat, docker=docker))
    assert finding(found, "permissions.by-acl-only").status is status


@pytest.mark.parametrize(
    ("way", "word"), [("cdi", "amd-ctk cdi generate"), ("runtime", "amd-ctk runtime configure")]
)
def test_what_amds_toolkit_lacks_is_told_with_its_own_command(way: str, word: str) -> None:
    told = finding(examined("r9700-gfx1201", passthrough=way), "access.passthrough")
    assert told.fix is not None
    assert word in told.fix.command
    there = examined("amd-runtime-is-default", passthrough=way)
    assert finding(there, "access.passthrough").status is Status.OK
    assert "not needed" in finding(there, "access.amd-runtime").evidence


def test_a_need_of_the_plan_that_no_check_knows_is_told_all_the_same() -> None:
    plan = examined(LAPTOP).plan
    assert plan is not None
    new = Notice(code="of-tomorrow", message="something is lacking", hint="get it")
    subject = Subject(
        facts=host(LAPTOP),
        configured=configured(),
        catalog=catalog(),
        plan=structs.replace(plan, unmet=(new,)),
    )
    (told,) = [each for each in findings(subject) if each.status is Status.FAIL]
    assert (told.id, told.evidence, told.reason) == (
        "settings.unmet",
        "something is lacking",
        "get it",
    )


def test_what_was_not_looked_at_is_skipped_and_not_called_good() -> None:
    found = examined("r9700-gfx1201")
    for check in ("images.missing", "model.missing", "endpoint.silent"):
        assert finding(found, check).status is Status.SKIPPED


# --- one cause, and what follows from it


def check(name: str, verdict: Verdict) -> Check:
    return Check(id=name, look=lambda _: verdict)


def found_by(*checks: Check) -> dict[str, Finding]:
    nobody = Subject(facts=host(LAPTOP), configured=None, catalog=None)  # type: ignore[arg-type]
    return {each.id: each for each in findings(nobody, checks)}


def test_a_failure_explains_its_chain_and_all_above_but_not_the_other_chain() -> None:
    found = found_by(
        check("driver.a", fail("e", "r", FIX)),
        check("driver.b", ok()),
        check("nodes.c", ok()),
        check("engine.d", ok()),
        check("settings.visible-devices", ok()),
        check("settings.refused", ok()),
        check("images.e", ok()),
    )
    skipped = {name for name, each in found.items() if each.because == "driver.a"}
    assert skipped == {"driver.b", "nodes.c", "settings.refused", "images.e"}
    assert found["engine.d"].status is Status.OK


def test_what_settles_a_chain_without_failing_leaves_the_rest_to_be_checked() -> None:
    found = found_by(
        check("hardware.a", ok("no card", rest="there is none")),
        check("kernel.b", fail("e", "r", FIX)),
        check("images.c", warn("e", "r", FIX)),
    )
    assert (found["kernel.b"].because, found["kernel.b"].reason) == ("hardware.a", "there is none")
    assert found["images.c"].status is Status.WARN


@pytest.mark.parametrize("case", SNAPSHOTS)
def test_every_trouble_has_evidence_a_reason_and_one_fix_and_nothing_else_has(case: str) -> None:
    for each in examined(case).findings:
        wrong = each.status in (Status.FAIL, Status.WARN)
        assert (each.fix is not None) is wrong, each.id
        assert not wrong or (each.evidence and each.reason), each.id
        assert (each.exit_code != 0) is (each.status is Status.FAIL), each.id


FORBIDDEN = re.compile(r"chmod|666|--privileged|curl|wget|sudo su|setenforce|seccomp")


@pytest.mark.parametrize("case", SNAPSHOTS)
def test_no_fix_opens_more_than_it_must(case: str) -> None:
    for each in examined(case).findings:
        if each.fix is None:
            continue
        assert FORBIDDEN.search(each.fix.command + each.fix.then) is None, each.fix
        if each.fix.safe:
            words = shlex.split(each.fix.command)
            assert words[0] in ("docker", "zluda-stack"), each.fix
            assert shlex.join(words) == each.fix.command, each.fix


@pytest.mark.parametrize("case", SNAPSHOTS)
def test_the_first_layer_that_fails_has_the_cause(case: str) -> None:
    found = examined(case)
    failing = [line for line in layer_lines(found.findings) if line.status is Status.FAIL]
    if found.cause is None:
        assert failing == []
    else:
        assert failing[0].text.startswith(found.cause.id)
        assert details(found.findings)[0] == found.cause


def test_ids_are_of_their_layers_and_in_their_order() -> None:
    order = list(Layer)
    places = [order.index(each.layer) for each in CHECKS]
    assert places == sorted(places)
    assert len({each.id for each in CHECKS}) == len(CHECKS)
    assert {each.layer for each in CHECKS} == set(Layer)
    assert all(re.fullmatch(r"[a-z]+\.[a-z0-9-]+", each.id) for each in CHECKS)


# --- whatever a host looks like


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(facts=HOSTS, flags=st.fixed_dictionaries({}, optional=FLAGS))
def test_any_host_at_all_is_examined(facts: HostFacts, flags: dict[str, str]) -> None:
    found = examined(facts, **flags)
    assert [each.id for each in found.findings] == [each.id for each in CHECKS]
    assert found.plan is not None or found.refusal is not None
    unmet = () if found.plan is None else found.plan.unmet
    stops = found.refusal is not None or any(each.code != TERMS for each in unmet)
    assert found.cause is not None or not stops, stops
    again = examined(msgspec.json.decode(msgspec.json.encode(facts), type=HostFacts), **flags)
    assert again == found
