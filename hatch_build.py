"""Record in wheel and sdist which commit they were built from; see zluda_stack/build_info.py."""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class RecordBuild(BuildHookInterface):
    """Put _build.json into the package. The same commit always gives the same bytes."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the facts to a temporary file and have it included."""
        package = Path(self.root) / "zluda_stack"
        facts = _build_info_module(package)
        # An sdist brings the facts of its own making; an editable install asks git.
        if version == "editable" or (package / facts.BUILD_FILE).exists():
            return
        info = facts.build_info(package)
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        if epoch:
            info = replace(info, date=facts.iso_date(int(epoch)))
        self._folder = tempfile.TemporaryDirectory()
        recorded = Path(self._folder.name) / facts.BUILD_FILE
        recorded.write_text(json.dumps(asdict(info), indent=2, sort_keys=True) + "\n")
        build_data["force_include"][str(recorded)] = f"zluda_stack/{facts.BUILD_FILE}"


def _build_info_module(package: Path) -> ModuleType:
    """zluda_stack.build_info, found by its path: the package is not installed while it is built."""
    sys.path.insert(0, str(package.parent))
    try:
        return importlib.import_module("zluda_stack.build_info")
    finally:
        sys.path.remove(str(package.parent))
