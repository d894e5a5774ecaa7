"""What the clients of a stack are told: the connection, and what most of them read.

Everything here is pure. Rendered settings hold the API key: they are for the user's eyes and
files of mode 0600 only.
"""

from __future__ import annotations

import shlex

from msgspec import Struct

from zluda_stack.plan.types import Plan

# The endpoint serves its model under this name whatever the model is.
MODEL = "default"

Json = dict[str, object]


class Connection(Struct, frozen=True, kw_only=True):
    """What every client needs. `context` is in tokens; `tools` is None when it is not known, and
    `small` is the model for a client's side errands.

    With HTTPS, `certificate` is the file of the endpoint's certificate, and `bundle` that of it
    and all others that the user's programs trust.
    """

    stack: str
    title: str
    url: str
    key: str
    context: int
    tools: bool | None
    small: str = MODEL
    certificate: str | None = None
    bundle: str | None = None

    @property
    def openai_url(self) -> str:
        """The base URL of OpenAI clients, which ends in /v1."""
        return f"{self.url}/v1"

    @property
    def longest_answer(self) -> int:
        """A quarter of the context in tokens: the rest is for the prompt and the history."""
        return self.context // 4


def connection(plan: Plan, key: str, bundle: str | None = None) -> Connection:
    """The connection to the stack of `plan`; `bundle` is of a stack with HTTPS."""
    model, tls = plan.model.catalogued, plan.endpoint.tls
    return Connection(
        stack=plan.name,
        title=model.title if model else plan.model.name,
        url=plan.endpoint.url,
        key=key,
        context=plan.model.context,
        tools=model.tools if model else None,
        small=_small(plan),
        certificate=tls.certificate if tls else None,
        bundle=bundle,
    )


def _small(plan: Plan) -> str:
    """The smallest model that a client may use in the place of the first one.

    It must call tools where that does, and have its context: clients know one length for all.
    """
    needs_tools = plan.model.catalogued is not None and plan.model.catalogued.tools
    able = [
        one.catalogued
        for one in plan.models
        if one.catalogued is not None
        and one.context >= plan.model.context
        and (one.catalogued.tools or not needs_tools)
    ]
    smallest = min(able, key=lambda one: one.parameter_count, default=None)
    return MODEL if smallest is None or smallest.name == plan.model.name else smallest.name


def environment(to: Connection) -> dict[str, str]:
    """The variables that the OpenAI and Anthropic packages and most tools read.

    An empty value means that the variable is taken away: a key of the user's for another server
    would be sent to this one as x-api-key (seen with Claude Code 2.1.332).
    """
    return {
        "OPENAI_BASE_URL": to.openai_url,
        "OPENAI_API_KEY": to.key,
        "ANTHROPIC_BASE_URL": to.url,
        "ANTHROPIC_AUTH_TOKEN": to.key,
        "ANTHROPIC_API_KEY": "",
        **trust(to),
    }


def trust(to: Connection) -> dict[str, str]:
    """The variables by which programs accept the endpoint's certificate; none without HTTPS.

    Node.js adds its file to what it trusts (nodejs.org, CLI options, NODE_EXTRA_CA_CERTS); the
    others, of OpenSSL, httpx and curl, and of requests, take the place of it.
    """
    if to.certificate is None or to.bundle is None:
        return {}
    return {
        "NODE_EXTRA_CA_CERTS": to.certificate,
        "SSL_CERT_FILE": to.bundle,
        "REQUESTS_CA_BUNDLE": to.bundle,
    }


def shell(variables: dict[str, str]) -> str:
    """Lines for `eval` in a POSIX shell; a variable with an empty value is unset."""
    lines = (
        f"export {name}={shlex.quote(value)}" if value else f"unset {name}"
        for name, value in variables.items()
    )
    return "\n".join(lines)


def openai(to: Connection) -> dict[str, str]:
    """The three values that any OpenAI client asks for, and what it must trust over HTTPS."""
    values = {"base_url": to.openai_url, "api_key": to.key, "model": MODEL}
    return values if to.certificate is None else {**values, "certificate": to.certificate}


def openai_snippet(to: Connection) -> str:
    """A Python program for the openai package that prints one answer."""
    trusting = "" if to.bundle is None else f"# SSL_CERT_FILE={shlex.quote(to.bundle)} python ...\n"
    return f"""\
{trusting}from openai import OpenAI

client = OpenAI(base_url={to.openai_url!r}, api_key={to.key!r})
answer = client.chat.completions.create(
    model={MODEL!r},
    messages=[{{"role": "user", "content": "Say hello."}}],
)
print(answer.choices[0].message.content)
"""
