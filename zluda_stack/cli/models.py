"""`models`: what the catalogue and the store have, and how a model gets in and out."""

from __future__ import annotations

import click

from zluda_stack.cli.models_explain import explain
from zluda_stack.cli.models_fit import fit
from zluda_stack.cli.models_list import list_
from zluda_stack.cli.models_store import gc, pull, rm, verify
from zluda_stack.cli.models_transfer import export, import_


@click.group()
def models() -> None:
    """List, fetch, check and remove models."""


for command in (list_, explain, fit, pull, verify, rm, gc, export, import_):
    models.add_command(command)
