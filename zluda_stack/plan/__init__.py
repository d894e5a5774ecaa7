"""Plan and resolve: the one place where decisions are made."""

from zluda_stack.plan.types import Plan

__all__ = ["Plan"]
