"""The paths that clients may ask for, by which methods, and which of them make the model compute.

Whatever else a model server has is answered with 404, and here is why, for llama.cpp's (its
README and build 11549, 2026-11-30):

- /slots shows the prompts of other keys, and asking it often keeps the server from noticing that
  a client has left; /slots/NUMBER saves, loads and erases the caches of others.
- /lora-adapters names files of the host, and a POST to it or to /props changes the server for all.
- /models/load and its like are a router's, /tools and /cors-proxy let the server act for whoever
  asks, /api/... is another program's dialect of which it has a part.
"""

from __future__ import annotations

from zluda_stack.gateway.errors import Fault

PROPS = "/props"

_READ = ("GET", "HEAD")
_SENT = ("POST",)

# llama.cpp answers these beside its slots, without the model, from what the request itself says.
_WITHOUT_MODEL = frozenset(
    {
        "/apply-template",
        "/detokenize",
        "/tokenize",
        "/v1/chat/completions/input_tokens",
        "/v1/messages/count_tokens",
        "/v1/responses/input_tokens",
    }
)
# Each has a slot of its own while it runs, and sees nothing of another one's.
_WITH_MODEL = frozenset(
    {
        "/chat/completions",
        "/completion",
        "/completions",
        "/embedding",
        "/embeddings",
        "/infill",
        "/rerank",
        "/reranking",
        "/responses",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/messages",
        "/v1/rerank",
        "/v1/reranking",
        "/v1/responses",
    }
)
_METHODS: dict[str, tuple[str, ...]] = {
    "/": _READ,
    "/api/hello": ("HEAD",),
    "/health": _READ,
    "/metrics": _READ,
    "/models": _READ,
    "/openapi.json": _READ,
    PROPS: ("GET",),
    "/v1/models": _READ,
    **dict.fromkeys(_WITHOUT_MODEL | _WITH_MODEL, _SENT),
}


def require_known(method: str, path: str) -> None:
    """Raises Fault: 404 for a path that is not there, 405 for a method that it does not take."""
    methods = _METHODS.get(_known(path))
    if methods is None:
        raise Fault(404, "there is nothing at this path", code="not_found")
    if method not in methods:
        allowed = ", ".join(methods)
        raise Fault(405, f"{method} is not for this path, but {allowed}", allow=allowed)


def computes(method: str, path: str) -> bool:
    """True when a request occupies a slot of the model server."""
    return method == "POST" and path in _WITH_MODEL


def label(path: str) -> str:
    """`path`, or "other" for one that is not known: whoever asks must not invent labels."""
    known = _known(path)
    return known if known in _METHODS else "other"


def _known(path: str) -> str:
    return "/v1/models" if path.startswith("/v1/models/") else path
