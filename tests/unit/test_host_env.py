"""compose/host-env.sh finds the same card as the program, and keeps what is not its own."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.unit.fake_host import CPU, RX_7900_XTX, FakeHost
from tests.unit.planning import configured, plan_for
from zluda_stack.catalog.load import load
from zluda_stack.errors import ExitCode, PlanRefused
from zluda_stack.host.kfd import gfx_name
from zluda_stack.host.probe import probe
from zluda_stack.plan.gpu import choose_gpu
from zluda_stack.plan.gpu_override import OVERRIDE
from zluda_stack.plan.gpu_target import serves
from zluda_stack.render.host_env import render_host_env

GIB = 1 << 30
SHELLS = [shell for shell in ("sh", "dash", "bash") if shutil.which(shell)]

pytestmark = pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="the script is for Linux hosts"
)


class Project:
    """A clone's compose folder, and the script run in it on a fake host."""

    def __init__(self, folder: Path) -> None:
        self.compose = folder / "clone/compose"
        self.compose.mkdir(parents=True)
        (self.compose / "host-env.sh").write_text(render_host_env(load()))
        for name in ("inference.yml", "native.yml", "webui.yml", "cpu.yml", "webui-cpu.yml"):
            (self.compose / name).touch()
        self.host = FakeHost(folder / "host")

    def card(
        self, node: int, minor: int, version: int, gib: int = 16, gtt_gib: int | None = None
    ) -> None:
        """Add a card with its render node."""
        own = {"gfx_target_version": version, "drm_render_minor": minor, "location_id": node << 8}
        self.host.with_kfd().with_node(node, RX_7900_XTX | own, vram_bytes=gib * GIB)
        self.host.with_render_node(minor, gtt_bytes=None if gtt_gib is None else gtt_gib * GIB)

    def run(
        self, shell: str = "sh", *, override: str = "", profile: str = "", gpu: str = ""
    ) -> str:
        """What the script says; it must succeed."""
        done = self.start(shell, override=override, profile=profile, gpu=gpu)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def run_without_card(self, shell: str = "sh", *, override: str = "", profile: str = "") -> str:
        """What the script says where a card is wanted and none can be used."""
        done = self.start(shell, override=override, profile=profile)
        assert done.returncode == ExitCode.HOST, done.stderr
        return done.stderr

    def start(
        self,
        shell: str = "sh",
        *arguments: str,
        override: str = "",
        profile: str = "",
        gpu: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Run the script with this HSA_OVERRIDE_GFX_VERSION, profile and GPU in the environment."""
        own = {"HOST_ROOT": str(self.host.root), OVERRIDE: override}
        own |= {"ZLUDA_STACK_PROFILE": profile, "ZLUDA_STACK_GPU": gpu}
        script = [shell, str(self.compose / "host-env.sh"), *arguments]
        return subprocess.run(
            script, env=os.environ | own, capture_output=True, text=True, check=False
        )

    def env(self) -> dict[str, str]:
        """The variables in .env."""
        lines = (self.compose / ".env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_native_profile_takes_a_card_that_zluda_does_not_serve(
    project: Project, shell: str
) -> None:
    project.card(1, 128, 90010)
    assert "gfx90a, which ZLUDA does not support" in project.run_without_card(shell)
    assert "ZLUDA_STACK_GPU" not in project.env()
    said = project.run(shell, profile="native")
    assert "native.yml up --build" in said
    assert project.env()["ZLUDA_STACK_GPU"] == "gfx90a"


def test_a_profile_that_there_is_not_is_refused(project: Project) -> None:
    done = project.start(profile="vulkan")
    assert done.returncode == 1
    assert "ZLUDA_STACK_PROFILE=vulkan is no profile" in done.stderr
    assert not (project.compose / ".env").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_card_is_described_by_target_node_and_gids(project: Project, shell: str) -> None:
    project.card(1, 128, 110000)
    assert "card: gfx1100" in project.run(shell)
    assert project.env() == {
        "ZLUDA_STACK_API_KEY_HASHES_FILE": "./secrets/api_key_hashes",
        "ZLUDA_STACK_GPU": "gfx1100",
        "ZLUDA_STACK_UID": str(os.getuid()),
        "ZLUDA_STACK_GID": str(os.getgid()),
        "HOST_ROOT": str(project.host.root),
        "HOST_KFD": "/dev/kfd",
        "HOST_KFD_GID": str(os.getgid()),
        "HOST_RENDER_NODE": "/dev/dri/renderD128",
    }


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_two_nodes_of_two_groups_give_two_gids(project: Project) -> None:
    project.card(1, 128, 110000)
    os.chown(project.host.root / "dev/kfd", 0, 148)
    os.chown(project.host.root / "dev/dri/renderD128", 0, 993)
    project.run()
    assert (project.env()["HOST_KFD_GID"], project.env()["HOST_RENDER_GID"]) == ("148", "993")


def test_the_discrete_card_is_preferred_whatever_its_place_and_memory(project: Project) -> None:
    project.host.with_node(0, CPU)
    project.card(1, 128, 100305, gib=64)
    project.card(2, 129, 120001, gib=16)
    project.run()
    assert project.env()["ZLUDA_STACK_GPU"] == "gfx1201"
    assert project.env()["HOST_RENDER_NODE"].endswith("renderD129")


def test_of_two_cards_the_larger_is_taken_and_of_equals_the_first(project: Project) -> None:
    project.card(9, 128, 110002, gib=8)
    project.card(10, 129, 110000, gib=24)
    project.card(11, 130, 110000, gib=24)
    project.run()
    assert project.env()["HOST_RENDER_NODE"].endswith("renderD129")


def test_an_apu_counts_with_its_gtt_and_a_discrete_card_with_its_own_memory(
    project: Project,
) -> None:
    project.card(1, 128, 110003, gib=64)
    project.card(2, 129, 110501, gib=1, gtt_gib=120)
    project.run()
    assert project.env()["ZLUDA_STACK_GPU"] == "gfx1151"
    project.card(3, 130, 110002, gib=8, gtt_gib=120)
    project.card(4, 131, 110000, gib=16)
    project.run()
    assert project.env()["ZLUDA_STACK_GPU"] == "gfx1100"


# (gfx_target_version, GiB on the card, GiB of GTT or None) of each card, in the kernel's order.
HOSTS = [
    [(110000, 24, 32)],
    [(100306, 1, 31), (120001, 16, 31)],
    [(120001, 16, 31), (100306, 1, 31)],
    [(110000, 24, 32), (110000, 24, 32)],
    [(110002, 8, 120), (110000, 20, 120)],
    [(110003, 96, 16), (110501, 1, 120)],
    [(110003, 96, None), (110501, 1, None)],
    [(90012, 2, 7)],
    [(90402, 192, 512), (100301, 12, 32)],
    [(119909, 48, 64), (110100, 16, 64)],
    [(100306, 1, 31)],
    [(100101, 8, 31), (110502, 1, 31), (110503, 1, 31)],
]


@pytest.mark.parametrize("override", ["", "10.3.0", " 11.00.0 ", "11.5.1"])
@pytest.mark.parametrize("cards", HOSTS)
def test_the_script_chooses_what_the_program_chooses(
    project: Project, cards: list[tuple[int, int, int | None]], override: str
) -> None:
    for number, (version, gib, gtt_gib) in enumerate(cards):
        project.card(number + 1, 128 + number, version, gib, gtt_gib)
    said = project.start(override=override).stderr
    environ = {"PATH": str(project.compose), OVERRIDE: override}
    facts = probe(None, environ, project.host.root)
    ours = ("HOST_", "ZLUDA_STACK_GPU", "ZLUDA_STACK_KERNEL", "ZLUDA_STACK_HSA")
    expected = plan_for(facts).host_environment
    assert ("error: no AMD card" in said) == ("ZLUDA_STACK_GPU" not in expected)
    told = {key: value for key, value in project.env().items() if key != "HOST_ROOT"}
    assert {key: told[key] for key in told if key.startswith(ours)} == {
        key: expected[key] for key in expected if key.startswith(ours)
    }


# What ZLUDA_STACK_GPU says. The cards are at 01:00.0, 02:00.0 and so on, in the kernel's order.
WISHES = [
    *("auto", "AUTO", "none", " None ", "0", "1", "01", "7", "100", "nonsense", "gfx", "-"),
    *("gfx1100", "GFX1100", "1100", "gfx-1201", "gfx1030", "gfx1036", "gfx942", "gfx11639"),
    *("0000:01:00.0", "00000000:1:0.0", "02:00.0", "2:0.0", "2:00.0", "0001:01:00.0", "ff:00.0"),
    *("01:00", "000:01:00.0", "00.0", "0:0.0", ":01:00.0", "0000000000:01:00.0", "1.0"),
]


@pytest.mark.parametrize("cards", HOSTS)
def test_the_script_takes_the_card_that_the_program_takes_for_the_same_wish(
    project: Project, cards: list[tuple[int, int, int | None]]
) -> None:
    for number, (version, gib, gtt_gib) in enumerate(cards):
        project.card(number + 1, 128 + number, version, gib, gtt_gib)
    for wish in WISHES:
        expected = taken_by_the_program(project, wish)
        done = project.start(gpu=wish)
        if expected is None:
            assert (wish, done.returncode) == (wish, 2)
            assert not (project.compose / ".env").exists()
        else:
            told = {key: project.env().get(key) for key in ("ZLUDA_STACK_GPU", "HOST_RENDER_NODE")}
            assert (wish, told) == (wish, expected)
            (project.compose / ".env").unlink()


def taken_by_the_program(project: Project, wish: str) -> dict[str, str | None] | None:
    """What .env says of the card that it chooses (None: nothing); None as a whole for a refusal.

    A card that is not here can be rendered for by the program, which says so; not by the script.
    """
    facts = probe(None, {"PATH": str(project.compose)}, project.host.root)
    try:
        choice = choose_gpu(facts, configured(gpu=wish), load())
    except PlanRefused:
        return None
    if "gpu-not-here" in {notice.code for notice in choice.unmet}:
        return None
    gpu = choice.gpu
    return {
        "ZLUDA_STACK_GPU": gpu.target if gpu else None,
        "HOST_RENDER_NODE": gpu.render_node if gpu else None,
    }


@pytest.mark.parametrize("shell", SHELLS)
def test_a_card_that_is_not_here_is_refused_with_those_that_are(
    project: Project, shell: str
) -> None:
    project.host.with_node(0, CPU)
    project.card(1, 128, 110000)
    project.card(2, 129, 100306)
    for wish in ("gfx1030", "2", "04:00.0", "nonsense", "all", "0,1"):
        done = project.start(shell, gpu=wish)
        assert done.returncode == ExitCode.USAGE
        error, hint = done.stderr.splitlines()
        assert error == f"error: ZLUDA_STACK_GPU={wish} names no card that is here"
        cards = "0: gfx1100 at 0000:01:00.0; 1: gfx1036 at 0000:02:00.0"
        assert hint.startswith(f"hint: Here: {cards}. ")
    assert list(project.compose.glob("*secrets*")) == []


@pytest.mark.parametrize("shell", SHELLS)
def test_a_named_card_that_cannot_be_used_is_refused_with_the_reason(
    project: Project, shell: str
) -> None:
    project.card(1, 128, 110000)
    project.card(2, 129, 100306)
    project.card(3, 130, 110000)
    (project.host.root / "dev/dri/renderD130").unlink()
    for wish, why in (("1", "gfx1036, for which rocBLAS has no"), ("2", "renderD130 is missing")):
        done = project.start(shell, gpu=wish)
        assert done.returncode == ExitCode.USAGE
        skipped, error, _ = done.stderr.splitlines()
        assert why in skipped
        assert error == f"error: ZLUDA_STACK_GPU={wish} names a card that cannot be used"
    assert not (project.compose / ".env").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_card_is_named_by_number_and_by_address(project: Project, shell: str) -> None:
    """Equal but for their place: a CPU and a card without a target count as `gpus` counts them."""
    project.host.with_node(0, CPU)
    project.card(1, 128, 0)
    project.card(9, 129, 110000)
    project.card(10, 130, 110000)
    for wish, minor in (("1", 129), ("2", 130), ("0A:00.0", 130), ("0000:9:0.0", 129)):
        assert "card: gfx1100" in project.run(shell, gpu=wish)
        assert project.env()["HOST_RENDER_NODE"] == f"/dev/dri/renderD{minor}"
    assert project.start(shell, gpu="0").returncode == ExitCode.USAGE


def test_an_address_of_two_cards_names_none(project: Project) -> None:
    for node, domain in ((1, 0), (2, 1)):
        own = {"location_id": 3 << 8, "domain": domain, "drm_render_minor": 127 + node}
        project.host.with_kfd().with_node(node, RX_7900_XTX | own).with_render_node(127 + node)
    done = project.start(gpu="03:00.0")
    assert done.returncode == ExitCode.USAGE
    assert "is the PCI address of several cards" in done.stderr
    assert "renderD129" in project.run(gpu="0001:03:00.0")


def test_a_target_without_kernels_gets_those_of_its_sibling(project: Project) -> None:
    project.card(1, 128, 100301)
    project.run()
    assert project.env()["ZLUDA_STACK_KERNEL_TARGET"] == "gfx1030"
    assert project.env()["ZLUDA_STACK_HSA_OVERRIDE"] == "10.3.0"


def test_a_card_that_zluda_does_not_support_is_skipped_by_name(project: Project) -> None:
    project.card(1, 128, 90402)
    said = project.run_without_card()
    assert "skipped: gfx942" in said
    assert "cpu.yml" in said
    assert "ZLUDA_STACK_GPU" not in project.env()


@pytest.mark.parametrize("version", [100101, 100306, 110502, 110503])
def test_a_target_without_kernels_is_skipped_with_a_reason_of_its_own(
    project: Project, version: int
) -> None:
    project.card(1, 128, version)
    said = project.run_without_card()
    assert f"skipped: {gfx_name(version)}, for which rocBLAS has no kernels" in said
    assert "ZLUDA does not support" not in said
    assert "cpu.yml" in said
    assert "ZLUDA_STACK_GPU" not in project.env()


@pytest.mark.parametrize("shell", SHELLS)
def test_an_override_says_whose_kernels_are_taken(project: Project, shell: str) -> None:
    project.card(1, 128, 110002)
    project.run(shell, override=" 11.0.0")
    assert project.env()["ZLUDA_STACK_GPU"] == "gfx1102"
    assert project.env()["ZLUDA_STACK_KERNEL_TARGET"] == "gfx1100"
    assert project.env()["ZLUDA_STACK_HSA_OVERRIDE"] == "11.0.0"


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("gfx1103", "wrong form"),
        ("11.0", "wrong form"),
        ("9.0.0", "gfx900, which ZLUDA does not support"),
        ("11.0.9", "gfx1109, which ZLUDA does not support"),
        ("10.3.1", "gfx1031, for which rocBLAS has no kernels"),
        ("11.5.02", "gfx1152, for which rocBLAS has no kernels"),
    ],
)
def test_an_override_that_cannot_serve_stops_the_script_and_the_program(
    project: Project, shell: str, override: str, reason: str
) -> None:
    project.card(1, 128, 110000)
    done = project.start(shell, override=override)
    assert done.returncode == 1
    error, hint = done.stderr.splitlines()
    assert error.startswith(f"error: {OVERRIDE}={override} ")
    assert reason in error
    assert hint.startswith("hint: ")
    assert not (project.compose / ".env").exists()
    facts = probe(None, {"PATH": "", OVERRIDE: override}, project.host.root)
    with pytest.raises(PlanRefused, match=f"{OVERRIDE}={override} "):
        plan_for(facts)


@pytest.mark.parametrize("missing", ["dev/kfd", "dev/dri/renderD128"])
def test_a_card_whose_device_node_is_missing_is_skipped(project: Project, missing: str) -> None:
    project.card(1, 128, 110000)
    (project.host.root / missing).unlink()
    assert missing in project.run_without_card()
    assert "HOST_KFD_GID" not in project.env()


def test_the_script_names_every_target_as_the_program_does() -> None:
    every = load().gpus.values()
    script = render_host_env(load())
    for profile in ("translated", "native"):
        named = re.findall(rf"^    {profile}\.(gfx[0-9a-f]+)\) ", script, re.MULTILINE)
        assert named == [gpu.target for gpu in every if serves(profile, gpu)]
    assert gfx_name(90010) == "gfx90a"
    assert "printf 'gfx%d%x%x'" in script


def test_the_key_is_made_once_and_only_its_owner_can_read_it(project: Project) -> None:
    project.run(gpu="none")
    secret, hashes = (project.compose / "secrets" / name for name in ("api_key", "api_key_hashes"))
    key = secret.read_text().strip()
    assert key.startswith("zs-")
    assert len(key) == len("zs-") + 64
    assert hashes.read_text().strip() == hashlib.sha256(key.encode()).hexdigest()
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert stat.S_IMODE(hashes.stat().st_mode) == 0o644
    project.run(gpu="none")
    assert secret.read_text().strip() == key


@pytest.mark.parametrize("shell", SHELLS)
def test_keys_that_were_added_stay_and_a_running_container_sees_the_same_file(
    project: Project, shell: str
) -> None:
    project.run(shell, gpu="none")
    hashes = project.compose / "secrets/api_key_hashes"
    own, file = hashes.read_text(), hashes.stat().st_ino
    added = f"{'ab' * 32} name=laptop per-minute=9\n"
    hashes.write_text(own + added)
    project.run(shell, gpu="none")
    assert (hashes.read_text(), hashes.stat().st_ino) == (own + added, file)
    (project.compose / "secrets/api_key").unlink()
    project.run(shell, gpu="none")
    assert hashes.read_text().endswith("\n" + added)
    assert own not in hashes.read_text()  # the old key of the stack opens no more


def test_what_the_user_wrote_stays_and_what_the_host_lost_goes(project: Project) -> None:
    project.card(1, 128, 100301)
    project.run()
    with (project.compose / ".env").open("a") as env:
        env.write(
            "HOST_RENDER_NODE_2=/dev/dri/renderD129\nZLUDA_STACK_PORT=9000\nZLUDA_STACK_ACCEPT_CUDA_EULA=yes\n"
        )
    shutil.rmtree(project.host.root)
    project.run_without_card()
    assert project.env() == {
        "ZLUDA_STACK_API_KEY_HASHES_FILE": "./secrets/api_key_hashes",
        "ZLUDA_STACK_UID": str(os.getuid()),
        "ZLUDA_STACK_GID": str(os.getgid()),
        "HOST_RENDER_NODE_2": "/dev/dri/renderD129",
        "ZLUDA_STACK_PORT": "9000",
        "ZLUDA_STACK_ACCEPT_CUDA_EULA": "yes",
    }


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_is_printed_and_nothing_written(project: Project, shell: str, flag: str) -> None:
    done = project.start(shell, flag)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: sh ")
    assert OVERRIDE in done.stdout
    assert not (project.compose / ".env").exists()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("arguments", [("--gpu", "gfx1100"), ("",), ("", "--help")])
def test_an_argument_is_refused_before_anything_is_written(
    project: Project, shell: str, arguments: tuple[str, ...]
) -> None:
    done = project.start(shell, *arguments)
    assert done.returncode == 2
    error, hint = done.stderr.splitlines()
    assert "takes no arguments" in error
    assert hint.endswith("host-env.sh --help")
    assert not (project.compose / ".env").exists()
    assert not (project.compose / "secrets").exists()


def test_only_a_compose_file_that_is_there_is_the_next_step(project: Project) -> None:
    said = project.run(gpu="none")
    assert f"next: docker compose -f {project.compose}/cpu.yml up" in said
    assert "next:" not in project.run_without_card()
    (project.compose / "cpu.yml").unlink()
    assert "cpu.yml" not in project.run_without_card()
    project.card(1, 128, 110000)
    assert f"next: docker compose -f {project.compose}/inference.yml up" in project.run()
    (project.compose / "inference.yml").rename(project.compose / "cpu.yml")
    assert f"next: docker compose -f {project.compose}/cpu.yml up" in project.run()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("profile", "wanted", "without"),
    [
        ("", "inference.yml", "cpu.yml"),
        ("native", "native.yml", "cpu.yml"),
        ("webui", "webui.yml", "webui-cpu.yml"),
    ],
)
def test_a_wanted_card_that_is_not_here_is_an_error_and_no_card_wanted_is_none(
    project: Project, shell: str, profile: str, wanted: str, without: str
) -> None:
    *_, error, hint = project.run_without_card(shell, profile=profile).splitlines()
    assert error == f"error: no AMD card that can be used is here, so {wanted} cannot run"
    assert hint.endswith(f": docker compose -f {project.compose}/{without} up --build")
    assert "ZLUDA_STACK_GPU" not in project.env()
    said = project.run(shell, profile=profile, gpu="none")
    assert f"next: docker compose -f {project.compose}/{without} up" in said


def test_who_wants_no_card_gets_none_though_one_is_here(project: Project) -> None:
    project.card(1, 128, 110000)
    project.run()
    said = project.run(gpu="none")
    assert "card: none" in said
    assert "ZLUDA_STACK_GPU" not in project.env()
    assert "HOST_RENDER_NODE" not in project.env()


def test_a_folder_that_was_rendered_for_the_cpu_needs_no_card(project: Project) -> None:
    for path in project.compose.glob("*.yml"):
        if path.name != "cpu.yml":
            path.unlink()
    assert f"next: docker compose -f {project.compose}/cpu.yml up" in project.run()


@pytest.mark.parametrize("shell", SHELLS)
def test_the_next_step_can_be_typed_whatever_the_folder_is_called(
    tmp_path: Path, shell: str
) -> None:
    project = Project(tmp_path / "it's my folder")
    said = project.run(shell, gpu="none")
    step = next(line for line in said.splitlines() if line.startswith("next: "))
    assert shlex.split(step)[4] == f"{project.compose}/cpu.yml"


def test_the_key_is_not_in_env_nor_said(project: Project) -> None:
    said = project.run(gpu="none")
    key = (project.compose / "secrets/api_key").read_text().strip()
    assert key not in said + (project.compose / ".env").read_text()
