"""The page at /: what runs here and how to connect. It shows no key and loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

HEADERS = [
    (b"content-type", b"text/html; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>zluda-stack</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 44em; margin: 2em auto; padding: 0 1em }}
pre {{ background: #8882; padding: .7em; overflow-x: auto }}
:root {{ color-scheme: light dark }}
</style>
<h1>zluda-stack</h1>
<p>{state}</p>
{notes}<h2>Connect</h2>
<p>The key of the stack is shown by <code>zluda-stack connect env</code> on the machine that
runs it.</p>
<p>Claude Code, and other clients of Anthropic's API:</p>
<pre>export ANTHROPIC_BASE_URL={url}
export ANTHROPIC_AUTH_TOKEN=KEY
claude</pre>
<p>Clients of OpenAI's API:</p>
<pre>export OPENAI_BASE_URL={url}/v1
export OPENAI_API_KEY=KEY</pre>
<p>Any name of a model means the one that runs. <code>GET /v1/models</code> lists the names.</p>
</html>
"""


def page(url: str, state: str, findings: Sequence[str]) -> bytes:
    """The page for who came by `url`. `state` is HTML, all else is text."""
    notes = "".join(f"<p>Note: {escape(finding)}.</p>\n" for finding in findings)
    return _PAGE.format(url=escape(url), state=state, notes=notes).encode()


def state(names: Sequence[str], context: int | None, missing: str) -> str:
    """What runs, as HTML; `missing` says why nothing does, "" when a model is ready."""
    if missing:
        return f"No model is ready: {escape(missing)}."
    listed = ", ".join(f"<b>{escape(name)}</b>" for name in names)
    size = f", with a context of {context:,} tokens" if context else ""
    return f"Ready: {listed}{size}."
