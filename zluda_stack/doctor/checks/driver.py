"""The driver: does amdgpu hold the card."""

from __future__ import annotations

from zluda_stack.doctor.commands import USE_CPU, distribution
from zluda_stack.doctor.subject import Subject, display_label
from zluda_stack.doctor.types import Check, Fix, Verdict, fail, ok, warn

_TO_A_VIRTUAL_MACHINE = ("vfio-pci", "pci-stub")


def _vfio_pci(subject: Subject) -> Verdict:
    held = [each for each in subject.amd_displays if each.driver in _TO_A_VIRTUAL_MACHINE]
    if not held:
        return ok()
    evidence = f"{display_label(held[0])} is held by {held[0].driver}"
    reason = "the card is set aside for virtual machines, so that amdgpu cannot drive it"
    address, driver = held[0].address, held[0].driver
    fix = Fix(
        command=f"echo {address} | sudo tee /sys/bus/pci/drivers/{driver}/unbind "
        "/sys/bus/pci/drivers_probe",
        then="To keep it so, remove the card's ids from vfio-pci.ids and /etc/modprobe.d.",
    )
    return warn(evidence, reason, fix) if subject.usable else fail(evidence, reason, fix)


def _old_radeon(subject: Subject) -> Verdict:
    held = [each for each in subject.amd_displays if each.driver == "radeon"]
    if not held or subject.driver_works:
        return ok()
    evidence = f"{display_label(held[0])} is driven by radeon"
    reason = "radeon drives cards that are older than everything ZLUDA serves"
    return warn(evidence, reason, USE_CPU, rest="the card is too old")


def _not_loaded(subject: Subject) -> Verdict:
    facts = subject.facts
    topology = facts.kfd is not None or facts.hidden_nodes > 0
    if facts.driver.loaded or subject.driver_works or topology:
        version = facts.driver.version
        return ok(f"amdgpu {version} (AMD's own package)" if version else "amdgpu")
    here = f" for {display_label(subject.amd_displays[0])}" if subject.amd_displays else ""
    return fail(
        f"the amdgpu driver is not loaded{here}",
        "no other driver makes /dev/kfd; some cloud kernels keep it in a package of its own "
        "(linux-modules-extra)",
        Fix(command="sudo modprobe amdgpu", then="`sudo dmesg` says why when it fails."),
    )


def _not_bound(subject: Subject) -> Verdict:
    idle = [each for each in subject.amd_displays if each.driver is None]
    if not idle:
        return ok()
    evidence = f"amdgpu is loaded, and {display_label(idle[0])} has no driver"
    reason = "mostly its firmware files are missing, or the kernel is older than the card"
    fix = Fix(
        command=distribution(subject).firmware,
        then="Restart the machine. `sudo dmesg | grep amdgpu` names the file or the fault.",
    )
    return warn(evidence, reason, fix) if subject.usable else fail(evidence, reason, fix)


CHECKS = (
    Check(id="driver.vfio-pci", look=_vfio_pci),
    Check(id="driver.old-radeon", look=_old_radeon),
    Check(id="driver.not-loaded", look=_not_loaded),
    Check(id="driver.not-bound", look=_not_bound),
)
