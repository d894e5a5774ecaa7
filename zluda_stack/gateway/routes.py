"""The paths that clients ask for: which make the model compute, and what they count as."""

from __future__ import annotations

# llama.cpp answers these beside its slots, without the model.
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
_KNOWN = _WITHOUT_MODEL | {
    "/api/hello",
    "/health",
    "/infill",
    "/metrics",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/models",
    "/v1/rerank",
    "/v1/responses",
}


def computes(method: str, path: str) -> bool:
    """True when a request occupies a slot of the model server.

    A POST to an unknown path counts as one, so that none passes by the queue and the quotas.
    """
    return method == "POST" and path not in _WITHOUT_MODEL


def label(path: str) -> str:
    """`path`, or "other" for one that is not known: whoever asks must not invent labels."""
    if path.startswith("/v1/models/"):
        return "/v1/models"
    return path if path in _KNOWN else "other"
