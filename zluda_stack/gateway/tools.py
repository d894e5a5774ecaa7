"""Which tools of a request the model is told about.

Tools with `defer_loading` are told about only once the conversation refers to them (Anthropic's
page "Tool search tool", read 2026-11-30; Claude Code 2.1 brings its own search tool and one
deferred placeholder that must never be called).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from zluda_stack.gateway.blocks import Block, tool_named_in
from zluda_stack.gateway.errors import Fault

Tool = dict[str, Any]

_SEARCH = "tool_search_tool_"
_RUN_BY_ANTHROPIC = ("web_search_", "web_fetch_", "code_execution_", "mcp_toolset", "advisor_")


def offered(tools: Iterable[Tool], messages: Iterable[dict[str, Any]]) -> list[Tool]:
    """The tools to pass on, those that came up later last. Raises Fault 400 for tools that only
    Anthropic's own servers can run."""
    tools = list(tools)
    ready, deferred = (tools, {}) if all(map(_is_plain, tools)) else _told_apart(tools)
    return _changed_later(ready or list(deferred.values()), deferred, messages)


def _is_plain(tool: Tool) -> bool:
    """True for one that the client runs and tells about at once, as nearly all are."""
    return tool.get("type") in (None, "custom") and not tool.get("defer_loading")


def _told_apart(tools: list[Tool]) -> tuple[list[Tool], dict[Any, Tool]]:
    """Those that are ready, and those that come up later by their names. Raises Fault 400."""
    searched_here = any(_kind(tool).startswith(_SEARCH) for tool in tools)
    ready: list[Tool] = []
    deferred: dict[Any, Tool] = {}
    for tool in tools:
        kind = _kind(tool)
        if kind.startswith(_RUN_BY_ANTHROPIC):
            raise Fault(400, f"tools: {kind} runs on Anthropic's servers only")
        if kind.startswith(_SEARCH):
            continue
        if tool.get("defer_loading") and not searched_here:
            deferred[tool.get("name")] = tool
        else:
            ready.append(tool)
    return ready, deferred


def _kind(tool: Tool) -> str:
    return str(tool.get("type") or "custom")


def _changed_later(
    ready: list[Tool], deferred: dict[Any, Tool], messages: Iterable[dict[str, Any]]
) -> list[Tool]:
    by_name = {tool.get("name"): tool for tool in ready}
    for block in _mentions(messages):
        name = tool_named_in(block)
        if block["type"] == "tool_removal":
            by_name.pop(name, None)
        elif name not in by_name and (found := _definition(block) or deferred.get(name)):
            by_name[name] = found
    return list(by_name.values())


def _mentions(messages: Iterable[dict[str, Any]]) -> Iterator[Block]:
    for message in messages:
        content = message["content"]
        for block in content if isinstance(content, list) else ():
            if block["type"] in ("tool_reference", "tool_addition", "tool_removal"):
                yield block
            elif block["type"] == "tool_result":
                yield from _mentions([{"content": block.get("content")}])


def _definition(block: Block) -> Tool | None:
    tool = block.get("tool")
    definition = tool.get("definition") if isinstance(tool, dict) else None
    return definition if isinstance(definition, dict) else None
