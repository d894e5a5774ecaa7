"""Requests as clients send them, as they get them wrong, and as nobody should: for hypothesis.

Every prompt in them holds PROMPT_MARK, every key KEY_MARK.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

PROMPT_MARK = "pr0mpt-mark"
KEY_MARK = "zs-k3y-mark"
RIGHT_KEY = f"{KEY_MARK}-right"

Json = dict[str, Any]
Headers = tuple[tuple[str, str], ...]

LEFT = ("x-left", "yes")  # of a request whose client does not wait
VERSION = ("anthropic-version", "2023-06-01")
MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
CHAT = "/v1/chat/completions"
OPEN_PATHS = ("/", "/api/hello", "/health", "/openapi.json")


@dataclass(frozen=True)
class Asked:
    """One request. It is `valid` when all of it is as the API says, `proper` when it is HTTP.

    `body` goes out as it is: how it is framed is in the headers.
    """

    method: str
    target: str
    headers: Headers = ()
    body: bytes = b""
    key: Headers = (("authorization", f"Bearer {RIGHT_KEY}"),)
    valid: bool = False
    proper: bool = True
    leaves: bool = False
    version: str = "HTTP/1.1"
    framing: Headers | None = None
    raw_head: bytes = field(default=b"", repr=False)

    @property
    def path(self) -> str:
        """The path as the endpoint takes it."""
        path = self.target.partition("?")[0]
        return path[3:] if path.startswith("/v1/v1/") else path

    @property
    def is_whole(self) -> bool:
        """True when all of it is sent, and an answer awaited."""
        declared = dict(self.framing or ()).get("content-length")
        return self.proper and not self.leaves and declared in (None, str(len(self.body)))

    @property
    def has_key(self) -> bool:
        """True when one of its keys is the right one."""
        return any(value.endswith(RIGHT_KEY) for _, value in self.key)

    @property
    def dialect(self) -> str:
        """Whose errors it gets."""
        of_messages = self.path == MESSAGES or self.path.startswith(f"{MESSAGES}/")
        declared = any(name.lower() == VERSION[0] for name, _ in self.headers)
        return "Anthropic" if of_messages or declared else "OpenAI"

    def on_the_wire(self) -> bytes:
        """The bytes to send."""
        framing = self.framing
        if framing is None:
            framing = (("content-length", str(len(self.body))),) if self.body else ()
        lines = [f"{self.method} {self.target} {self.version}", "host: endpoint"]
        lines += ["connection: close"]
        lines += [f"{name}: {value}" for name, value in (*self.key, *framing, *self.headers)]
        head = "\r\n".join(lines).encode("latin-1")
        return head + self.raw_head + b"\r\n\r\n" + self.body


# What clients send.

_marked = st.sampled_from(["", " Hello.", " 你好", " \u0000", " \\", ' "', " <|im_end|>"]).map(
    lambda words: PROMPT_MARK + words
)
_names = st.sampled_from(["look", "edit", "a b", ""])
_models = st.sampled_from(
    ["default", "claude-sonnet-4-5", "gpt-5", "", 'a"b', "größe/x", "x" * 300]
)
_png = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
_schemas = st.sampled_from([{}, {"type": "object", "properties": {"at": {"type": "string"}}}])


def _object(needed: Json, **optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries(needed, optional=optional)


_text_block = _object({"type": st.just("text"), "text": _marked})
_image = st.just({"type": "image", "source": _png})
_result = _object(
    {"type": st.just("tool_result"), "tool_use_id": st.just("toolu_1")},
    content=_marked | st.lists(_text_block | _image, max_size=2),
    is_error=st.booleans(),
)
_document = {"type": "text", "media_type": "text/plain", "data": PROMPT_MARK}
_blocks = st.one_of(
    _text_block,
    _image,
    _result,
    st.just({"type": "document", "source": _document}),
    st.just({"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": PROMPT_MARK}}),
    st.just({"type": "thinking", "thinking": PROMPT_MARK, "signature": "x"}),
)
_turns = _object(
    {
        "role": st.sampled_from(["user", "user", "assistant", "system"]),
        "content": _marked | st.lists(_blocks, max_size=3),
    }
)
_tool = _object({"name": st.just("look"), "input_schema": _schemas}, description=_marked)
_tool_choice = _object(
    {"type": st.sampled_from(["auto", "any", "tool", "none"]), "name": st.just("look")},
    disable_parallel_tool_use=st.booleans(),
)
_COUNTED = {
    "model": _models,
    "system": _marked | st.lists(_text_block, max_size=2),
    "tools": st.lists(_tool, min_size=1, max_size=2),
    "tool_choice": _tool_choice,
    "thinking": st.sampled_from([{"type": "disabled"}, {"type": "adaptive"}]),
}
_MESSAGES = {"messages": st.lists(_turns, min_size=1, max_size=3)}
_bodies: dict[str, st.SearchStrategy[Json]] = {
    MESSAGES: _object(
        {**_MESSAGES, "max_tokens": st.integers(1, 99_999)},
        **_COUNTED,
        stream=st.booleans(),
        temperature=st.floats(0, 2),
        stop_sequences=st.lists(_marked, max_size=2),
    ),
    COUNT: _object(_MESSAGES, **_COUNTED),
    CHAT: _object(
        {
            "messages": st.lists(
                _object(
                    {
                        "role": st.sampled_from(["system", "user", "assistant", "tool"]),
                        "content": _marked | st.none() | st.lists(_text_block, max_size=2),
                    }
                ),
                min_size=1,
                max_size=3,
            )
        },
        model=_models | st.none(),
        stream=st.booleans() | st.none(),
        max_tokens=st.integers(1, 9999) | st.none(),
        tools=st.lists(
            st.just({"type": "function", "function": {"name": "look", "parameters": {}}}),
            max_size=2,
        ),
        tool_choice=st.sampled_from(
            ["auto", "required", {"type": "function", "function": {"name": "look"}}]
        ),
        response_format=st.just({"type": "json_object"}),
    ),
    "/v1/completions": _object(
        {"prompt": _marked},
        model=_models,
        stream=st.booleans(),
        suffix=_marked,
        max_tokens=st.integers(1, 99),
        stop=_marked,
    ),
    "/v1/responses": _object(
        {"input": _marked | st.lists(_object({"role": st.just("user"), "content": _marked}))},
        model=_models,
        stream=st.booleans(),
        instructions=_marked,
        max_output_tokens=st.integers(1, 9),
        tools=st.lists(st.just({"type": "function", "name": "look", "parameters": {}})),
        tool_choice=st.sampled_from(["auto", {"type": "function", "name": "look"}]),
    ),
    "/v1/embeddings": _object(
        {"input": _marked | st.lists(_marked, min_size=1, max_size=3)}, model=_models
    ),
    "/infill": _object(
        {"input_prefix": _marked, "input_suffix": _marked},
        stream=st.booleans(),
        n_predict=st.integers(-1, 99),
    ),
}
POSTED = tuple(_bodies)

_keys = st.sampled_from(
    [
        (("authorization", f"Bearer {RIGHT_KEY}"),),
        (("x-api-key", RIGHT_KEY),),
        (("Authorization", f"Bearer {KEY_MARK}-wrong"), ("X-Api-Key", RIGHT_KEY)),
    ]
)
_session = (("x-claude-code-session-id", "3c5f"), ("anthropic-beta", "a,b"))
_client_headers = st.sampled_from([(), (VERSION,), _session, (("accept-encoding", "gzip"),)])


@st.composite
def _well_posted(draw: st.DrawFn) -> Asked:
    path = draw(st.sampled_from(POSTED))
    body = json.dumps(draw(_bodies[path]), ensure_ascii=draw(st.booleans())).encode()
    query = draw(st.sampled_from(["", "?beta=true", f"?q={PROMPT_MARK}&key={RIGHT_KEY}"]))
    return Asked(
        "POST",
        path + query,
        (("content-type", "application/json"), *draw(_client_headers)),
        body,
        draw(_keys),
        valid=True,
    )


_gets = st.builds(
    Asked,
    st.just("GET"),
    st.sampled_from(
        [
            *OPEN_PATHS[:1],
            *OPEN_PATHS[2:],
            "/metrics",
            "/v1/models",
            "/v1/models?limit=1000",
            "/v1/models/default",
            "/v1/models/claude-opus-4-1",
        ]
    ),
    st.sampled_from([(), (VERSION,)]),
    key=_keys,
    valid=st.just(True),
)
_probes = st.builds(Asked, st.just("HEAD"), st.sampled_from(["/", "/api/hello"]), key=_keys)
valid = st.one_of(*(_well_posted() for _ in range(5)), _gets, _probes)

# What they get wrong, or mean to: the body.


def _long(*patterns: tuple[str, int]) -> st.SearchStrategy[str]:
    return st.sampled_from(patterns).map(lambda one: one[0] * one[1])


_numbers = st.sampled_from(
    ["NaN", "-Infinity", "1e999", "18446744073709551616", "0.1e-400", "1.0", "-1"]
) | _long(("9", 30), ("9", 400), ("9", 5000))
_odd_texts = st.sampled_from(
    [r'"\ud800"', r'"\udfff\ud800"', r'"\u0000"', r'"\x"', '"\n"', '"\x00"']
) | _long(("é", 9000)).map(json.dumps)
_deep = st.builds(
    lambda begin, end, inner, depth: begin * depth + inner + end * depth,
    *(
        st.sampled_from(["[", '{"a":', '[{"type":"text","content":']),
        st.sampled_from(["]", "}", ""]),
    ),
    st.sampled_from(["", "1", '"x"']),
    st.sampled_from([30, 300, 900, 1100, 100_000]),
)


@st.composite
def _nested(draw: st.DrawFn) -> str:
    """A value in itself, so deep that something that calls itself for each level ends there."""
    begin, end = draw(
        st.sampled_from(
            [
                ("[", "]"),
                ('{"a":', "}"),
                ('[{"type":"tool_result","content":', "}]"),
                ('[{"type":"document","source":{"type":"content","content":', "}}]"),
                ('[{"type":"search_result","content":', "}]"),
            ]
        )
    )
    depth = draw(st.sampled_from([10, 100, 300, 450, 600, 900, 5000]))
    return begin * depth + draw(st.sampled_from(["[]", "1", '"x"'])) + end * depth


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["type", "text", "content", "name"]), inner, max_size=2)
    ),
    max_leaves=3,
).map(json.dumps)
_values = st.one_of(_json, _numbers, _odd_texts, _nested(), _deep)
_HOLE = "@hole@"


_MORE = ("tools", "tool_choice", "system", "output_config", "suffix", "prompt", "n", "é")


@st.composite
def _one_wrong_value(draw: st.DrawFn) -> Asked:
    """A request with another value, or one more or less, somewhere in it."""
    asked = draw(_well_posted())
    body = json.loads(asked.body)
    places = list(_places(body))
    holder, name = places[draw(st.integers(0, len(places) - 1))]
    how = draw(st.sampled_from(["other", "other", "other", "twice", "without", "more"]))
    value = draw(_values)
    if how == "without":
        del holder[name]
    elif how == "more" and isinstance(holder, dict):
        holder[draw(st.sampled_from(_MORE))] = _HOLE
    else:
        holder[name] = _HOLE
    text = json.dumps(body).replace(f'"{_HOLE}"', value)
    if how == "twice":
        text = f"{text[:-1]}, {text[1:]}"
    return replace(asked, body=text.encode(errors="surrogatepass"), valid=False)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every holder of a value, with the name or number by which it holds it."""
    names = value if isinstance(value, dict) else range(len(value))
    found = [(value, name) for name in names]
    for name in names:
        if isinstance(value[name], (dict, list)):
            found += _places(value[name])
    return found


_wrong_bodies = st.one_of(
    _values.map(str.encode),
    st.binary(max_size=20),
    st.sampled_from(
        [b"", b"\xef\xbb\xbf{}", b"{}{}", b"{", "{}".encode("utf-16"), b"\x1f\x8b\x08"]
    ),
)


@st.composite
def _wrongly_posted(draw: st.DrawFn) -> Asked:
    """Another body, half of one, or one that is not what its headers say."""
    asked = draw(_well_posted())
    how = draw(st.sampled_from(["other", "half", "bytes", "kind", "encoding"]))
    if how == "other":
        return replace(asked, body=draw(_wrong_bodies), valid=False)
    if how == "half":
        return replace(asked, body=asked.body[: draw(st.integers(0, 200))], valid=False)
    if how == "bytes":
        at = draw(st.integers(0, 60))
        junk = draw(st.binary(min_size=1, max_size=3))
        return replace(asked, body=asked.body[:at] + junk + asked.body[at + 1 :], valid=False)
    kinds = [
        "text/plain",
        "multipart/form-data; boundary=x",
        "application/json; charset=utf-16",
        "",
    ]
    header = ("content-encoding", draw(st.sampled_from(["gzip", "br", "identity", "x, y"])))
    if how == "kind":
        header = ("content-type", draw(st.sampled_from(kinds)))
    others = tuple(pair for pair in asked.headers if pair[0] != "content-type")
    return replace(asked, headers=(*others, header), valid=False)


# Keys, methods, paths, headers.

_wrong_keys = st.sampled_from(
    [
        (),
        (("x-api-key", ""),),
        (("authorization", "Bearer"),),
        (("authorization", RIGHT_KEY[:-1]),),
        (("authorization", f"Basic {KEY_MARK}"),),
        (("x-api-key", f"{KEY_MARK}-é"),),
        (("authorization", f"Bearer {KEY_MARK} \t {KEY_MARK}"),) * 3,
    ]
) | _long((KEY_MARK, 2000)).map(lambda key: (("x-api-key", key),))
_methods = st.sampled_from(
    ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "M-SEARCH"]
)
_targets = st.one_of(
    st.sampled_from(POSTED),
    st.sampled_from(
        [
            *OPEN_PATHS,
            *("/v1", "/v1/", "/v1/v1/models", "/v1/messages/", "/v1/models/", "/v1/models/a/b"),
            *("/v1/models/%ff%00", "/v1/models?limit=0", "/v1/models?limit=9&after_id=%ff"),
            *("//x", "/..", "/%2e%2e/metrics"),
            *("/slots", "/props", "/lora-adapters", "/v1/files", "/?a=b&&=", "/metrics?x=[]"),
            f"/v1/models/x?q={PROMPT_MARK}&key={RIGHT_KEY}",
        ]
    ),
    _long(("9", 5000)).map("/v1/models?limit=".__add__),
    _long(("/x", 2000)),
)
_odd_headers = st.sampled_from(
    [
        (("anthropic-version", ""),),
        (("expect", "100-continue"),),
        (("connection", "upgrade"), ("upgrade", "websocket")),
        (("connection", "x-api-key, content-type"),),
        (("x-empty", ""), ("x-bytes", "\xff\xfe"), ("x-tab", "a\tb")),
        (("x-many", "y"),) * 60,
        (("content-type", "application/json"),) * 2,
        (("origin", "https://a.example"), ("access-control-request-method", "POST")),
        (("accept", "text/event-stream;q=x"), ("range", "bytes=0-"), ("if-none-match", "*")),
        (("x-forwarded-for", "::1"), ("forwarded", "for=x"), ("x-request-id", "mine")),
        (("host", "elsewhere"),),
        (("cookie", "a=b"), ("te", "trailers"), ("trailer", "x")),
    ]
) | _long(("y", 20_000)).map(lambda value: (("x-long", value),))
_unkeyed = st.builds(lambda asked, key: replace(asked, key=key, valid=False), valid, _wrong_keys)
_with_odd_headers = st.builds(
    lambda asked, odd: replace(asked, headers=(*asked.headers, *odd), valid=False),
    valid,
    _odd_headers,
)
_elsewhere = st.builds(
    Asked,
    _methods | st.just("POST"),
    _targets,
    _client_headers | _odd_headers,
    st.sampled_from([b"", b"{}", json.dumps({"prompt": PROMPT_MARK}).encode()]),
    _keys | _keys | _wrong_keys,
)

# Framing.


def _chunked(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in pieces) + b"0\r\n\r\n"


_in_chunks = st.builds(
    lambda asked, size: replace(
        asked,
        framing=(("transfer-encoding", "chunked"),),
        body=_chunked(asked.body, size),
    ),
    _well_posted(),
    st.sampled_from([1000, 77]),
)
_http_1_0 = st.builds(lambda asked: replace(asked, version="HTTP/1.0"), valid)
_too_large = st.builds(
    lambda asked, more: replace(
        asked,
        framing=(("content-length", str(32 * 1024 * 1024 + more)),),
        body=b"{",
        valid=False,
    ),
    _well_posted(),
    st.sampled_from([1, 10**9, 10**15]),
)
_improperly_framed = st.builds(
    lambda asked, framing: replace(asked, framing=framing, valid=False, proper=False),
    _well_posted(),
    st.sampled_from(
        [
            (("content-length", "-1"),),
            (("content-length", "0x10"),),
            (("content-length", "9" * 30),),
            (("content-length", "5"), ("content-length", "6")),
            (("content-length", "5"), ("transfer-encoding", "chunked")),
            (("transfer-encoding", "gzip"),),
            (("transfer-encoding", "chunked"),) * 2,
            (("transfer-encoding", "chunked"), ("x", "y")),
            (("content-length", "5"),),
        ]
    ),
)
_improper_heads = st.builds(
    lambda asked, head: replace(asked, raw_head=head, valid=False, proper=False),
    _well_posted(),
    st.sampled_from(
        [
            b"\r\nno colon",
            b"\r\n folded: line",
            b"\r\nx y: z",
            b"\r\nx: a\x00b",
            b"\r\nx: a\rb",
            b"\r\n: empty",
            b"\nx-bare: newline",
            b"\r\n\r\n",
        ]
    )
    | _long(("y", 400_000)).map(lambda value: b"\r\nx: " + value.encode()),
)
_improper_lines = st.builds(
    lambda asked, method, target, version: replace(
        asked, method=method, target=target, version=version, valid=False, proper=False
    ),
    _well_posted(),
    st.sampled_from(["POST", "post", "A!#$", "P OST", "", "CONNECT", "\x16\x03\x01"]),
    st.sampled_from(["", "*", "http://elsewhere/v1/models", "/a b", "/\xe9", "elsewhere:443"]),
    st.sampled_from(["HTTP/1.1", "HTTP/9.9", "HTTP/2.0", "HTTPS", ""]),
)
_leaving = st.builds(
    lambda asked: replace(asked, headers=(*asked.headers, LEFT), leaves=True, valid=False), valid
)

hostile = st.one_of(
    *(_one_wrong_value() for _ in range(6)),
    *(_wrongly_posted() for _ in range(2)),
    _unkeyed,
    _with_odd_headers,
    _elsewhere,
    _in_chunks,
    _http_1_0,
    _too_large,
    _improperly_framed,
    _improper_heads,
    _improper_lines,
    _leaving,
)
requests = valid | hostile
