"""What a person finds in a bundle: how to install from it, with nothing but sh, tar and Python."""

from __future__ import annotations

import shlex

from zluda_stack.bundle.manifest import Manifest

README = "README.txt"
INSTALL = "install.sh"
REQUIREMENTS = "requirements.txt"
VENV = "zluda-stack-venv"


def commands(manifest: Manifest, file: str) -> tuple[str, ...]:
    """The command lines that bring a stack up from the bundle `file`, in order."""
    program = f"{VENV}/bin/zluda-stack"
    name = shlex.quote(file)
    install = (f"tar -xf {name} {INSTALL} {REQUIREMENTS} wheels", f"sh {INSTALL}")
    return (
        *(install if manifest.python else ()),
        f"{program} bundle load {name}",
        shlex.join((program, "up", "--offline", *manifest.up)),
    )


def readme(manifest: Manifest, file: str) -> str:
    """README.txt: what the bundle is for, and the commands."""
    lines = "\n".join(f"    {line}" for line in commands(manifest, file))
    needs = [f"It was written by zluda-stack {manifest.version}."]
    if manifest.python:
        needs.append(f"Its Python packages are for: {manifest.python}.")
    else:
        needs.append("It holds no Python packages: zluda-stack must be installed already.")
    if manifest.images:
        needs.append(f"Its container images are for {manifest.machine}, and need Docker.")
    return (
        "Everything for a stack of zluda-stack on a machine without network.\n"
        + "\n".join(needs)
        + f"\n\nIn a folder of yours that holds this bundle:\n\n{lines}\n\n"
        "Every file is compared with the SHA-256 in manifest.json before it is used. What was\n"
        "loaded stays loaded: after an interruption, give the same command again.\n"
    )


def install_script(python: str, pip_wheel: str) -> str:
    """install.sh: a virtual environment from the bundle's wheels alone.

    pip runs from its own wheel, since a Debian without python3-venv has none to offer.
    """
    return _INSTALL.format(
        python=shlex.quote(python),
        pip=shlex.quote(f"wheels/{pip_wheel}"),
        venv=VENV,
        requirements=REQUIREMENTS,
    )


_INSTALL = """\
#!/bin/sh
# sh install.sh [FOLDER]: zluda-stack in a virtual environment, from the packages beside this file.
set -eu
cd -- "$(dirname -- "$0")"
python=${{PYTHON:-python3}}
venv=${{1:-{venv}}}
wanted={python}
found=$("$python" -c 'import platform, sys
version = "%d.%d" % sys.version_info[:2]
libc = platform.libc_ver()[0] or "other"
print(sys.implementation.name, version, platform.system(), platform.machine(), libc)')
if [ "$found" != "$wanted" ]; then
    echo "error: the packages are for $wanted, and $python is $found" >&2
    echo "hint: name another Python: PYTHON=/path/to/python3 sh install.sh" >&2
    exit 4
fi
"$python" -m venv --without-pip "$venv"
PYTHONPATH={pip} "$venv/bin/python" -m pip --disable-pip-version-check install --quiet \\
    --no-index --find-links wheels --require-hashes --requirement {requirements}
echo "zluda-stack is installed: $venv/bin/zluda-stack"
"""
