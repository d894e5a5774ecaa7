"""What the checks look at: the facts, the plan that came of them, and what follows from both."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from zluda_stack.catalog.schema import Catalog
from zluda_stack.host.facts import DeviceNode, HostFacts, PciDisplay
from zluda_stack.plan.gpu_card import Card, cards_of
from zluda_stack.plan.gpu_reach import amdgpu_nodes
from zluda_stack.plan.types import Notice, Plan
from zluda_stack.settings import Configured, Settings

AMD, NVIDIA, INTEL = 0x1002, 0x10DE, 0x8086
CPU_WAY = "zluda-stack up --engine embedded"


class Refusal(Struct, frozen=True):
    """Why there is no plan, and the next step."""

    message: str
    hint: str


class StageNeed(Struct, frozen=True, kw_only=True):
    """What building one stage takes the first time, in gigabytes; `part` is its image's folder."""

    part: str
    stage: str
    disk_gb: float
    memory_gb: float


class Subject(Struct, frozen=True, kw_only=True):
    """One host with one wish. Exactly one of `plan` and `refusal` is there.

    `build_needs` are the stages of each planned image, by its name; images share some.
    """

    facts: HostFacts
    configured: Configured
    catalog: Catalog
    plan: Plan | None = None
    refusal: Refusal | None = None
    build_needs: Mapping[str, frozenset[StageNeed]] = {}

    @property
    def settings(self) -> Settings:
        """What the user wishes."""
        return self.configured.settings

    @property
    def no_gpu_wanted(self) -> bool:
        """True when the user chose the CPU."""
        return self.settings.engine == "embedded" or self.settings.gpu.strip().lower() == "none"

    @property
    def gpu_named(self) -> bool:
        """True when the user asked for a certain card."""
        return self.settings.gpu.strip().lower() not in ("auto", "none")

    @property
    def amd_displays(self) -> tuple[PciDisplay, ...]:
        """AMD's GPUs on the PCI bus, with or without a driver."""
        return tuple(each for each in self.facts.pci_displays if each.vendor == AMD)

    @property
    def amd_render_nodes(self) -> tuple[DeviceNode, ...]:
        """The render nodes of AMD's cards."""
        return tuple(node for node in self.facts.render_nodes if node.vendor == AMD)

    @property
    def amd_is_here(self) -> bool:
        """True when anything at all shows an AMD GPU, or that one was meant to be here."""
        facts = self.facts
        return bool(facts.gpus or self.amd_displays or self.amd_render_nodes) or (
            facts.kfd is not None or facts.hidden_nodes > 0
        )

    @property
    def driver_works(self) -> bool:
        """True when amdgpu drives at least one card."""
        bound = any(each.driver == "amdgpu" for each in self.amd_displays)
        return bool(self.facts.gpus) or bound or bool(amdgpu_nodes(self.facts))

    @property
    def cards(self) -> tuple[Card, ...]:
        """The GPUs of the KFD topology, as `zluda-stack gpus` numbers them."""
        return cards_of(self.facts, self.configured, self.catalog)

    @property
    def usable(self) -> tuple[Card, ...]:
        """Those that can be served."""
        return tuple(card for card in self.cards if card.trouble is None)

    @property
    def outside_kfd(self) -> tuple[PciDisplay, ...]:
        """AMD's GPUs on the PCI bus that the KFD topology does not list."""
        offered = {gpu.pci for gpu in self.facts.gpus}
        return tuple(each for each in self.amd_displays if each.address not in offered)

    @property
    def wants_gpu(self) -> bool:
        """True when the plan computes on a GPU, or without a plan would be expected to."""
        if self.plan is not None:
            return self.plan.gpu is not None
        return not self.no_gpu_wanted and (self.amd_is_here or self.gpu_named)

    @property
    def wants_docker(self) -> bool:
        """True when the plan runs in containers, or without a plan would be expected to."""
        if self.plan is not None:
            return self.plan.engine != "embedded"
        return self.settings.engine == "docker" or self.wants_gpu

    @property
    def chosen(self) -> Card | None:
        """The card that the plan takes, else the first that it could; None without any."""
        planned = self.plan.gpu if self.plan is not None else None
        for card in self.usable:
            if planned is not None and card.index == planned.index:
                return card
        return next(iter(self.usable), None)

    @property
    def rootless(self) -> bool:
        """True when the engine runs as the user, and not as root."""
        docker, podman = self.facts.docker, self.facts.podman
        if docker.rootless is None and docker.emulated_by and podman is not None:
            return podman.rootless is True
        return docker.rootless is True

    def unmet(self, *codes: str) -> Notice | None:
        """The first thing of one of these codes that the plan lacks on this host."""
        lacking = self.plan.unmet if self.plan is not None else ()
        return next((notice for notice in lacking if notice.code in codes), None)

    @property
    def client_does_not_fit(self) -> bool:
        """True when the plan is refused for the sake of the client that was asked for."""
        client = self.catalog.clients.get(self.settings.client)
        if client is None or self.refusal is None:
            return False
        return self.refusal.message.startswith(f"{client.title} (")


def display_label(display: PciDisplay) -> str:
    """The card on the PCI bus in a few words."""
    return f"{display.name or f'{display.vendor:04x}:{display.device:04x}'} at {display.address}"
