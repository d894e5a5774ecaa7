"""Content blocks of Anthropic's Messages API, reduced to those that llama.cpp's server knows.

What the server does not know it drops without a word (its server-chat.cpp, build 11669, read
2026-11-30): documents, the error mark of a tool result, references to tools. Block types:
Anthropic's Messages API reference, read 2026-11-30.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from zluda_stack.gateway.errors import Fault

Block = dict[str, Any]

TOOL_FAILED = "The tool reports an error:"

# The words in brackets are those at which Claude Code sends the request again without its images,
# or its documents, and goes on (2.1.332, seen 2026-11-30). At any others it repeats the whole
# request six times and then fails.
_NO_IMAGES = "the model that runs here cannot see images (capability_rejected: image_block)"
_NO_PDF = (
    "PDF and remote documents are not supported by this endpoint: send their text "
    "(capability_rejected: document_block)"
)

_AS_THEY_ARE = frozenset({"text", "tool_use", "thinking"})
# What Anthropic's own servers did or hid in an earlier turn: no model here can use it.
_OF_OTHER_SERVERS = frozenset({"redacted_thinking", "server_tool_use", "mcp_tool_use"})


def text(words: str) -> Block:
    """A text block."""
    return {"type": "text", "text": words}


def has_image(content: object) -> bool:
    """True when an image is among the blocks of `content`, or inside one of its tool results."""
    return isinstance(content, list) and any(
        block["type"] == "image" or has_image(block.get("content")) for block in content
    )


def reduced(content: Iterable[Block], *, sees_images: bool) -> list[Block]:
    """`content` with text, images (when the model sees them), tool calls, their results and
    thinking only. Raises Fault 400 for what can neither be passed on nor be left out."""
    return [one for block in content for one in _reduced(block, sees_images=sees_images)]


def words_of(content: str | Iterable[Block]) -> str:
    """The text of `content`."""
    if isinstance(content, str):
        return content
    return "\n".join(block.get("text", "") for block in content if block["type"] == "text")


def _reduced(block: Block, *, sees_images: bool) -> Iterator[Block]:
    kind = block["type"]
    if kind in _AS_THEY_ARE or (kind == "image" and sees_images):
        yield block
    elif kind == "image":
        raise Fault(400, _NO_IMAGES)
    elif kind == "tool_result":
        yield _tool_result(block, sees_images=sees_images)
    elif kind == "document":
        yield from _document(block, sees_images=sees_images)
    elif kind == "search_result":
        yield text(f"{block.get('title', '')}\n{block.get('source', '')}".strip())
        if isinstance(block.get("content"), list):
            yield from reduced(block["content"], sees_images=sees_images)
    elif kind in ("tool_reference", "tool_addition"):
        yield text(f"The tool {tool_named_in(block)} can be called now.")
    elif kind == "tool_removal":
        yield text(f"The tool {tool_named_in(block)} can no longer be called.")
    elif kind not in _OF_OTHER_SERVERS and not kind.endswith("_tool_result"):
        raise Fault(400, f"messages: content of type {kind} is not supported by this endpoint")


def tool_named_in(block: Block) -> str:
    """The name of the tool that a reference, an addition or a removal is about, "" if none."""
    inner = block.get("tool")
    if not isinstance(inner, dict):
        return str(block.get("tool_name", ""))
    definition = inner.get("definition")
    return str((definition if isinstance(definition, dict) else inner).get("name", ""))


def _tool_result(block: Block, *, sees_images: bool) -> Block:
    content = block.get("content")
    if isinstance(content, list):
        told: str | list[Block] = reduced(content, sees_images=sees_images)
    else:
        told = content if isinstance(content, str) else ""
    if block.get("is_error"):
        told = [text(TOOL_FAILED), *told] if isinstance(told, list) else f"{TOOL_FAILED}\n{told}"
    return block if told == content else {**block, "content": told}


def _document(block: Block, *, sees_images: bool) -> Iterator[Block]:
    source = block.get("source") or {}
    for field in ("title", "context"):
        if isinstance(words := block.get(field), str) and words:
            yield text(words)
    if source.get("type") == "text" and isinstance(source.get("data"), str):
        yield text(source["data"])
    elif source.get("type") == "content" and isinstance(source.get("content"), str):
        yield text(source["content"])
    elif source.get("type") == "content" and isinstance(source.get("content"), list):
        yield from reduced(source["content"], sees_images=sees_images)
    else:
        raise Fault(400, _NO_PDF)
