"""The device nodes: /dev/kfd, and the card's render node under /dev/dri."""

from __future__ import annotations

from zluda_stack.doctor.commands import outside
from zluda_stack.doctor.subject import Subject, display_label
from zluda_stack.doctor.types import Check, Fix, Verdict, fail, ok, warn

_BOTH = "/dev/kfd and the card's /dev/dri/renderD*"


def _kfd_missing(subject: Subject) -> Verdict:
    facts = subject.facts
    if facts.kfd is not None or not subject.driver_works:
        return ok()
    seen = ", ".join(node.path for node in subject.amd_render_nodes) or "the amdgpu driver"
    evidence = f"{seen} is there, /dev/kfd is not"
    if facts.container:
        return fail(evidence, "the container was not given it", outside(subject, "/dev/kfd"))
    return fail(
        evidence,
        "amdgpu draws pictures, and its compute part is missing: mostly a kernel without HSA_AMD",
        Fix(
            command='grep CONFIG_HSA_AMD= "/boot/config-$(uname -r)"',
            then="Without `=y`, start the distribution's own kernel; with it, "
            "`sudo dmesg | grep kfd` says why.",
        ),
    )


def _dri_missing(subject: Subject) -> Verdict:
    facts = subject.facts
    if facts.kfd is None or facts.dri_exists:
        return ok()
    evidence = "/dev/kfd is there, /dev/dri is not"
    if facts.container:
        reason = "the container was given one and not the other; ROCm needs both"
        return fail(evidence, reason, outside(subject, _BOTH))
    return fail(
        evidence,
        "ROCm opens the card by its render node; without one, programs fall back to the CPU",
        Fix(
            command="sudo dmesg | grep -i -e drm -e amdgpu",
            then="It says why the kernel made no render node.",
        ),
    )


def _hidden(subject: Subject) -> Verdict:
    facts = subject.facts
    if facts.hidden_nodes == 0:
        return ok()
    count = f"{facts.hidden_nodes} KFD node{'s' * (facts.hidden_nodes > 1)}"
    if facts.gpus:
        return ok(f"the device cgroup hides {count} of other cards")
    return fail(
        f"the device cgroup hides {count}, and no other is there",
        "a card shows itself only where its own render node is allowed",
        outside(subject, "the card's /dev/dri/renderD*")
        if facts.container
        else Fix(
            command="cat /proc/self/cgroup",
            then="The unit or session named there restricts devices (DeviceAllow of systemd).",
        ),
    )


def _not_in_kfd(subject: Subject) -> Verdict:
    facts = subject.facts
    if facts.gpus or facts.hidden_nodes or facts.kfd is None:
        return ok()
    seen = subject.amd_displays or subject.amd_render_nodes
    if not seen:
        return ok("/dev/kfd", rest="the KFD topology lists no GPU")
    card = display_label(subject.amd_displays[0]) if subject.amd_displays else "the AMD card"
    return fail(
        f"/dev/kfd is there, and its topology does not list {card}",
        "the compute driver left it out: too old a card, or a slot without PCIe atomics",
        Fix(
            command="sudo dmesg | grep kfd",
            then="`PCI rejects atomics` means the slot: use one that is wired to the CPU.",
        ),
    )


def _render_missing(subject: Subject) -> Verdict:
    facts = subject.facts
    lacking = [card for card in subject.usable if card.facts.render_node is None]
    if not lacking:
        nodes = [gpu.render_node for gpu in facts.gpus if gpu.render_node]
        return ok(", ".join(("/dev/kfd", *nodes))) if facts.kfd else ok()
    evidence = f"the render node of {lacking[0].label} is missing under /dev/dri"
    reason = "ROCm opens the card by it"
    fix = (
        outside(subject, "the card's /dev/dri/renderD*")
        if facts.container
        else Fix(command="sudo udevadm trigger --subsystem-match=drm && ls -l /dev/dri")
    )
    others = len(lacking) < len(subject.usable)
    return warn(evidence, reason, fix) if others else fail(evidence, reason, fix)


CHECKS = (
    Check(id="nodes.kfd-missing", look=_kfd_missing),
    Check(id="nodes.dri-missing", look=_dri_missing),
    Check(id="nodes.hidden", look=_hidden),
    Check(id="nodes.not-in-kfd", look=_not_in_kfd),
    Check(id="nodes.render-missing", look=_render_missing),
)
