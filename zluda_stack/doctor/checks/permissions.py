"""Permissions: who may open the device nodes.

The Docker Engine opens nodes as root, and its containers join their groups by number: what the
user may open matters to programs outside containers, and to engines that run as the user.
"""

from __future__ import annotations

from zluda_stack.doctor.commands import join_group, outside
from zluda_stack.doctor.subject import Subject
from zluda_stack.doctor.types import Check, Fix, Verdict, fail, ok, warn
from zluda_stack.host.facts import DeviceNode
from zluda_stack.plan.passthrough import shuts_out_its_group

# What a node shows whose owner or group has no number in this user namespace (user_namespaces(7)).
_NOBODY = 65534
_UDEV_RULE = (
    """echo 'SUBSYSTEM=="kfd", GROUP="render", MODE="0660"' """
    "| sudo tee /etc/udev/rules.d/70-kfd.rules "
    "&& sudo udevadm control --reload && sudo udevadm trigger"
)


def _nodes(subject: Subject) -> list[DeviceNode]:
    """/dev/kfd and the render node of the card that would be used."""
    facts, chosen = subject.facts, subject.chosen
    path = chosen.facts.render_node if chosen is not None else None
    render = [node for node in facts.render_nodes if node.path == path]
    return [node for node in (facts.kfd, *render) if node is not None]


def _closed(subject: Subject) -> list[DeviceNode]:
    """Those of them that this user may not open."""
    return [node for node in _nodes(subject) if not node.accessible]


def _complain(subject: Subject, evidence: str, fix: Fix) -> Verdict:
    if subject.rootless:
        return fail(evidence, "the engine runs as you, so its containers may not open them", fix)
    reason = (
        "containers of the Docker Engine are not affected, they join the groups by number; "
        "programs outside containers are"
    )
    return warn(evidence, reason, fix)


def _user_namespace(subject: Subject) -> Verdict:
    foreign = [node for node in _nodes(subject) if node.gid == _NOBODY]
    if not foreign:
        return ok()
    evidence = f"group {_NOBODY}, which stands for no group at all, owns {_names(foreign)}"
    reason = "this runs in a user namespace that does not map the group, so nobody here can join it"
    if subject.facts.container:
        return fail(evidence, reason, outside(subject, "the group's number"))
    return fail(evidence, reason, Fix(command="cat /proc/self/gid_map"))


def _group_is_shut_out(subject: Subject) -> Verdict:
    shut = [node for node in _nodes(subject) if shuts_out_its_group(node)]
    if not shut:
        return ok()
    evidence = f"the mode {shut[0].mode or 0:04o} keeps the group out of {_names(shut)}"
    reason = "a container that is not root gets in by the group, and only by that"
    return fail(evidence, reason, Fix(command=_UDEV_RULE))


def _old_session(subject: Subject) -> Verdict:
    user = subject.facts.user
    waiting = [node for node in _closed(subject) if node.gid in user.configured_gids]
    if not waiting or waiting[0].gid in user.gids:
        return ok()
    evidence = f"your user is in group {waiting[0].gid} of {_names(waiting)}, this session is not"
    names = {gid: name for name, gid in user.groups.items()}
    group = names.get(waiting[0].gid, f'"$(stat -c %G {waiting[0].path})"')
    return _complain(subject, evidence, Fix(command=f"newgrp {group}", then="Or log in again."))


def _not_in_group(subject: Subject) -> Verdict:
    user = subject.facts.user
    outsiders = [
        node for node in _closed(subject) if node.gid not in (*user.gids, *user.configured_gids)
    ]
    if not outsiders or user.root:
        return ok()
    evidence = f"your user is not in group {outsiders[0].gid}, which owns {_names(outsiders)}"
    return _complain(subject, evidence, join_group(subject, outsiders[0].path, outsiders[0].gid))


def _by_acl_only(subject: Subject) -> Verdict:
    user = subject.facts.user
    seat = [
        node
        for node in _nodes(subject)
        if node.accessible and node.acl and node.gid not in user.gids and not user.root
    ]
    if not seat or not subject.rootless:
        return ok()
    return warn(
        f"you may open {_names(seat)} by an access list, not by its group {seat[0].gid}",
        "the list is of whoever sits at the screen: over ssh, and after a logout, it is gone",
        join_group(subject, seat[0].path, seat[0].gid),
    )


def _gids(subject: Subject) -> Verdict:
    gids = sorted({node.gid for node in _nodes(subject)})
    if not gids or not subject.wants_docker:
        return ok()
    groups = " and ".join(map(str, gids))
    return ok(f"containers join group {groups} by number; no name has to be known in them")


def _names(nodes: list[DeviceNode]) -> str:
    return " and ".join(node.path for node in nodes)


CHECKS = (
    Check(id="permissions.user-namespace", look=_user_namespace),
    Check(id="permissions.group-shut-out", look=_group_is_shut_out),
    Check(id="permissions.old-session", look=_old_session),
    Check(id="permissions.not-in-group", look=_not_in_group),
    Check(id="permissions.by-acl-only", look=_by_acl_only),
    Check(id="permissions.gids", look=_gids),
)
