"""The endpoint in front of a scripted model server: every failure that a real one can show."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.fake_upstream import (
    LOADING,
    FakeModelServer,
    Script,
    error,
    message_events,
    silence,
    stream,
    sudden_death,
    whole,
)
from tests.running_gateway import CHAT, KEY, MESSAGES, RunningGateway, Start

PROMPT = "a-secret-prompt"
ASK = b'{"model":"default","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}'
ASK_STREAM = ASK[:-1] + b',"stream":true}'


@pytest.mark.parametrize("headers", [{}, {"x-api-key": "no"}, {"Authorization": "Bearer no"}])
def test_a_missing_or_wrong_key_is_refused_in_the_callers_dialect(
    gateway: RunningGateway, model_server: Start, headers: dict[str, str]
) -> None:
    server = model_server(whole(b"{}"))
    response, body = gateway.request("POST", MESSAGES, headers, ASK)
    told = json.loads(body)
    assert response.status == 401
    assert (told["type"], told["error"]["type"]) == ("error", "authentication_error")
    assert told["request_id"] == response.headers["request-id"]
    response, body = gateway.request("POST", CHAT, headers, ASK)
    assert response.status == 401
    assert json.loads(body)["error"]["code"] == "invalid_api_key"
    assert response.headers["x-request-id"].startswith("req_")
    assert server.requests == []


@pytest.mark.parametrize(
    "headers",
    [
        {"x-api-key": KEY},
        {"Authorization": f"Bearer {KEY}"},
        {"Authorization": f"bearer {KEY}"},
        {"Authorization": "Bearer left-over", "x-api-key": KEY},
        {"Authorization": f"Bearer {KEY}", "x-api-key": "left-over"},
    ],
)
def test_either_right_key_opens_and_is_not_passed_on(
    gateway: RunningGateway, model_server: Start, headers: dict[str, str]
) -> None:
    server = model_server(whole(b'{"answer":1}'))
    response, body = gateway.request("POST", CHAT, headers, b'{"question":1}')
    assert (response.status, body) == (200, b'{"answer":1}')
    head, received = server.requests[0]
    assert received == b'{"question":1}'
    assert KEY.encode() not in head
    assert b"authorization" not in head.lower()


def test_path_query_and_end_to_end_headers_arrive_and_hop_by_hop_headers_do_not(
    gateway: RunningGateway, model_server: Start
) -> None:
    server = model_server(whole(b"{}"))
    headers = {
        "x-api-key": KEY,
        "anthropic-beta": "a,b",
        "Connection": "keep-alive, x-hop",
        "x-hop": "1",
        "Keep-Alive": "timeout=3",
    }
    response, _ = gateway.request("POST", "/v1/v1/messages?beta=true", headers, ASK)
    head = server.requests[0][0].lower()
    assert head.startswith(b"post /v1/messages?beta=true http/1.1\r\n")
    assert b"anthropic-beta: a,b" in head
    assert b"x-hop" not in head
    assert b"keep-alive" not in head
    assert response.headers["x-kept"] == "yes"
    assert response.headers["keep-alive"] is None


def test_a_request_target_that_is_no_path_is_400(gateway: RunningGateway) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port)) as raw:
        lines = (b"OPTIONS * HTTP/1.1", b"Host: x", b"x-api-key: %s" % KEY.encode())
        raw.sendall(b"\r\n".join(lines) + b"\r\nConnection: close\r\n\r\n")
        assert raw.makefile("rb").readline().startswith(b"HTTP/1.1 400")


def test_a_query_reaches_the_model_server_as_it_is(
    gateway: RunningGateway, model_server: Start
) -> None:
    server = model_server(whole(b"{}"))
    path = "/tokenize?q=%C3%A4&x"
    assert gateway.request("POST", path, body=b"{}")[0].status == 200
    assert server.requests[-1][0].startswith(f"POST {path} HTTP/1.1\r\n".encode())


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("GET", path) for path in ("//elsewhere/v1", "/v1/files/a%2Fb", "/v1/../v1/%2e%2e")),
        *(("GET", path) for path in ("/slots", "/slots?x", "/lora-adapters", "/api/tags")),
        ("POST", "/slots/0?action=save"),
        ("POST", "/lora-adapters"),
        ("POST", "/models/load"),
        ("POST", "/tools"),
    ],
)
def test_what_is_not_for_clients_never_reaches_the_model_server(
    gateway: RunningGateway, model_server: Start, method: str, path: str
) -> None:
    server = model_server(whole(b'[{"prompt":"of another"}]'))
    response, body = gateway.request(method, path, body=b"{}")
    assert response.status == 404
    assert json.loads(body)["error"]["code"] == "not_found"
    assert server.requests == []


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", CHAT, "POST"),
        ("GET", MESSAGES, "POST"),
        ("DELETE", "/health", "GET, HEAD"),
        ("PUT", "/v1/models", "GET, HEAD"),
        ("POST", "/v1/models/default", "GET, HEAD"),
        ("POST", "/props", "GET"),
        ("POST", "/", "GET, HEAD"),
        ("OPTIONS", "/v1/embeddings", "POST"),
    ],
)
def test_a_method_that_a_path_does_not_take_is_405_and_says_which_it_takes(
    gateway: RunningGateway, model_server: Start, method: str, path: str, allow: str
) -> None:
    server = model_server(whole(b"{}"))
    response, body = gateway.request(method, path)
    assert (response.status, response.headers["allow"]) == (405, allow)
    assert json.loads(body)["error"]["type"] == "invalid_request_error"
    assert server.requests == []


def test_props_tell_what_the_model_is_and_nothing_of_the_host(
    gateway: RunningGateway, model_server: Start
) -> None:
    told = {
        "default_generation_settings": {"n_ctx": 512, "params": {"seed": 1}, "prompt": PROMPT},
        "total_slots": 2,
        "chat_template": "{{ x }}",
        "model_path": "/home/someone/model.gguf",
        "endpoint_slots": True,
    }
    model_server({"/props": whole(json.dumps(told).encode())})
    response, body = gateway.request("GET", "/props")
    assert response.status == 200
    assert json.loads(body) == {
        "default_generation_settings": {"n_ctx": 512, "params": {"seed": 1}},
        "total_slots": 2,
        "chat_template": "{{ x }}",
    }
    model_server({"/props": whole(b'{"default_generation_settings":1}')}).close()


@pytest.mark.parametrize("path", [CHAT, MESSAGES, "/v1/responses", "/v1/completions"])
@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "no body"),
        (b'{"model":"\xff"}', "UTF-8"),
        (b'{"messages":[],"max_tokens":1}', "at least one message"),
        (b'{"messages":[{"role":"user","content":"x"}],"max_tokens":0}', "at least 1, not 0"),
        (b'{"messages":[{"role":"user","content":"x"}],"max_tokens":-3}', "at least 1, not -3"),
    ],
)
def test_what_can_never_be_answered_is_told_before_the_model_server_is_asked(
    gateway: RunningGateway, model_server: Start, path: str, body: bytes, told: str
) -> None:
    server = model_server(whole(b"{}"))
    response, answer = gateway.request("POST", path, body=body)
    assert response.status == 400
    assert told in json.loads(answer)["error"]["message"]
    assert server.requests == []


def test_no_limit_in_llama_cpps_way_is_passed_on(
    gateway: RunningGateway, model_server: Start
) -> None:
    model_server(whole(b"{}"))
    body = ASK.replace(b'"max_tokens":9', b'"max_tokens":-1')
    assert gateway.request("POST", CHAT, body=body)[0].status == 200


def test_a_compressed_body_is_415(gateway: RunningGateway, model_server: Start) -> None:
    server = model_server(whole(b"{}"))
    headers = {"x-api-key": KEY, "content-encoding": "gzip"}
    response, body = gateway.request("POST", CHAT, headers, gzip.compress(ASK))
    assert response.status == 415
    assert "gzip" in json.loads(body)["error"]["message"]
    assert server.requests == []
    headers["content-encoding"] = "identity"
    assert gateway.request("POST", CHAT, headers, ASK)[0].status == 200


@pytest.mark.parametrize("stream_it", [True, False])
def test_a_message_has_an_id_of_its_own_in_anthropics_form(
    gateway: RunningGateway, model_server: Start, stream_it: bool
) -> None:
    message = {"id": "chatcmpl-1", "type": "message", "content": [], "usage": {}}
    answer = stream(*message_events("a")) if stream_it else whole(json.dumps(message).encode())
    model_server(answer)
    ids = set()
    for _ in range(2):
        _, body = gateway.request("POST", MESSAGES, body=ASK_STREAM if stream_it else ASK)
        found = re.search(rb'"id":"(msg_[0-9a-f]{24})"', body)
        assert found is not None
        ids.add(found[1])
    assert len(ids) == 2


def test_probes_answer_without_a_key(gateway: RunningGateway) -> None:
    for path in ("/", "/api/hello"):
        response, _ = gateway.request("HEAD", path, {})
        assert response.status == 200


def test_health_needs_no_key_and_follows_the_model_server(
    gateway: RunningGateway, model_server: Start
) -> None:
    response, body = gateway.request("GET", "/health", {})
    assert response.status == 503
    assert "not running" in json.loads(body)["message"]
    model_server(whole(b'{"status":"ok"}'))
    response, body = gateway.request("GET", "/health", {})
    assert (response.status, json.loads(body)) == (200, {"status": "ok"})


def test_health_says_that_the_model_is_loading(
    gateway: RunningGateway, model_server: Start
) -> None:
    model_server(whole(b"{}", status=b"503 Service Unavailable"))
    response, body = gateway.request("GET", "/health", {})
    assert response.status == 503
    assert "loaded" in json.loads(body)["message"]


@pytest.mark.parametrize(
    ("path", "kind"), [(MESSAGES, "rate_limit_error"), (CHAT, "rate_limit_error")]
)
def test_a_request_while_the_model_loads_is_told_when_to_come_again(
    gateway: RunningGateway, model_server: Start, path: str, kind: str
) -> None:
    model_server(LOADING)
    response, body = gateway.request("POST", path, body=ASK)
    assert response.status == 429
    assert 1 <= int(response.headers["retry-after"]) <= 60
    assert json.loads(body)["error"]["type"] == kind


def test_health_of_a_model_server_that_is_silent_is_503(
    gateway: RunningGateway, model_server: Start
) -> None:
    model_server(silence)
    response, body = gateway.request("GET", "/health", {})
    if b"loaded" in body:  # the answer to a question that the server of the test before was asked
        response, body = gateway.request("GET", "/health", {})
    assert response.status == 503
    assert "does not answer" in json.loads(body)["message"]


def test_an_absent_model_server_is_503_and_one_that_dies_is_502_in_the_dialect(
    gateway: RunningGateway, model_server: Start
) -> None:
    response, body = gateway.request("POST", MESSAGES, body=ASK)
    assert response.status == 503
    assert json.loads(body)["error"]["type"] == "overloaded_error"
    response, body = gateway.request("POST", CHAT, body=ASK)
    assert response.status == 503
    assert json.loads(body)["error"]["type"] == "server_error"
    model_server(sudden_death)
    response, body = gateway.request("POST", MESSAGES, body=ASK)
    assert response.status == 502
    assert json.loads(body)["error"]["type"] == "api_error"


def test_an_answer_that_breaks_off_in_its_body_is_502_and_not_half_an_answer(
    gateway: RunningGateway, model_server: Start
) -> None:
    async def half(writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
        )
        await writer.drain()

    model_server(half)
    response, body = gateway.request("POST", CHAT, body=ASK)
    assert response.status == 502
    assert json.loads(body)["error"]["type"] == "server_error"


def test_a_stream_arrives_event_by_event_while_it_is_made(
    gateway: RunningGateway, model_server: Start
) -> None:
    model_server(stream(b'data: {"n":1}\n\n', then=silence))
    connection = gateway.connect()
    connection.request("POST", CHAT, ASK_STREAM, {"x-api-key": KEY})
    response = connection.getresponse()
    assert response.headers["content-type"] == "text/event-stream"
    assert response.readline() == b'data: {"n":1}\n'


def test_a_stream_that_ends_properly_is_passed_byte_for_byte(
    gateway: RunningGateway, model_server: Start
) -> None:
    chunks = (b": comment\n\n", b"data: 1\r\n\r\ndata:", b" 2\n", b"\ndata: [DONE]\n\n", b"tail")
    model_server(stream(*chunks))
    _, body = gateway.request("POST", CHAT, body=ASK_STREAM)
    assert body == b"".join(chunks)


def test_a_stream_that_breaks_off_ends_with_an_error_event_of_the_dialect(
    gateway: RunningGateway, model_server: Start
) -> None:
    model_server(stream(b"data: {}\n\n", b'data: {"half', then=sudden_death))
    response, body = gateway.request("POST", CHAT, body=ASK_STREAM)
    first, last = body.decode().split("\n\n")[:2]
    assert (response.status, first) == (200, "data: {}")
    assert "stopped" in json.loads(last.removeprefix("data: "))["error"]["message"]
    _, body = gateway.request("POST", MESSAGES, body=ASK_STREAM)
    event, data = body.decode().split("\n\n")[-2].split("\n")
    assert event == "event: error"
    assert json.loads(data.removeprefix("data: "))["type"] == "error"


@pytest.mark.parametrize("script", [silence, stream(b"data: 1\n\n", then=silence)])
def test_a_client_that_leaves_stops_the_work_of_the_model_server(
    gateway: RunningGateway, model_server: Start, script: Script
) -> None:
    server = model_server(script)
    connection = gateway.connect()
    connection.request("POST", CHAT, ASK_STREAM, {"x-api-key": KEY})
    while not server.requests:
        time.sleep(0.01)
    assert not server.client_left.is_set()
    connection.sock.shutdown(socket.SHUT_RDWR)
    connection.close()
    assert server.client_left.wait(10)


def test_a_body_above_the_limit_is_413_and_one_at_the_limit_passes(
    gateway: RunningGateway, model_server: Start
) -> None:
    server = model_server(whole(b"{}"))
    limit = 32 * 1024 * 1024
    response, body = gateway.request("POST", MESSAGES, body=ASK.ljust(limit))
    assert response.status == 200, body
    assert len(server.requests[0][1]) == limit
    response, body = gateway.request("POST", MESSAGES, body=ASK.ljust(limit + 1))
    assert response.status == 413
    assert json.loads(body)["error"]["type"] == "request_too_large"
    assert len(server.requests) == 1


def test_a_body_of_undeclared_length_above_the_limit_is_413(gateway: RunningGateway) -> None:
    connection = gateway.connect()
    chunks = (b"x" * 1024 * 1024 for _ in range(33))
    connection.request("POST", CHAT, chunks, {"x-api-key": KEY}, encode_chunked=True)
    response = connection.getresponse()
    assert response.status == 413


def test_sigterm_lets_a_request_in_flight_end(mortal_gateway: RunningGateway) -> None:
    go_on = threading.Event()

    async def slow(writer: asyncio.StreamWriter) -> None:
        await asyncio.get_running_loop().run_in_executor(None, go_on.wait)
        await whole(b'{"late":true}')(writer)

    server = FakeModelServer(mortal_gateway.socket, slow)
    connection = mortal_gateway.connect()
    connection.request("POST", CHAT, ASK, {"x-api-key": KEY})
    while not server.requests:
        time.sleep(0.01)
    mortal_gateway.process.send_signal(signal.SIGTERM)
    while "Shutting down" not in mortal_gateway.log.read_text():
        time.sleep(0.01)
    go_on.set()
    assert json.loads(connection.getresponse().read()) == {"late": True}
    assert mortal_gateway.process.wait(20) == -signal.SIGTERM
    server.close()


def test_sigterm_ends_an_endless_stream_with_an_error_event(
    mortal_gateway: RunningGateway,
) -> None:
    server = FakeModelServer(mortal_gateway.socket, stream(b"data: 1\n\n", then=silence))
    connection = mortal_gateway.connect()
    connection.request("POST", MESSAGES, ASK_STREAM, {"x-api-key": KEY})
    response = connection.getresponse()
    mortal_gateway.process.send_signal(signal.SIGTERM)
    assert b"event: error" in response.read()
    assert mortal_gateway.process.wait(20) == -signal.SIGTERM
    server.close()


def test_the_log_has_a_line_for_a_request_but_no_prompt_and_no_key(
    mortal_gateway: RunningGateway,
) -> None:
    server = FakeModelServer(mortal_gateway.socket, whole(b"{}"))
    headers = {"Authorization": f"Bearer {KEY}"}
    response, _ = mortal_gateway.request(
        "POST", f"{CHAT}?q={PROMPT}", headers, ASK.replace(b"hi", PROMPT.encode())
    )
    mortal_gateway.process.terminate()
    mortal_gateway.process.wait(20)
    log = mortal_gateway.log.read_text()
    assert f"{response.headers['x-request-id']} 127.0.0.1 POST {CHAT} -> 200" in log
    assert PROMPT not in log
    assert KEY not in log
    server.close()


def test_a_stream_that_came_whole_is_not_logged_as_left(mortal_gateway: RunningGateway) -> None:
    server = FakeModelServer(mortal_gateway.socket, stream(*message_events("a")))
    for _ in range(10):
        mortal_gateway.request("POST", MESSAGES, body=ASK_STREAM)
    mortal_gateway.process.terminate()
    mortal_gateway.process.wait(20)
    lines = [line for line in mortal_gateway.log.read_text().splitlines() if " POST " in line]
    assert len(lines) == 10
    assert all(line.endswith(" ok") for line in lines)
    server.close()


def test_a_long_path_is_cut_in_the_log_even_of_a_stranger(mortal_gateway: RunningGateway) -> None:
    mortal_gateway.request("GET", "/" + "x" * 5000 + f"?{PROMPT}", {})
    mortal_gateway.process.terminate()
    mortal_gateway.process.wait(20)
    (line,) = [one for one in mortal_gateway.log.read_text().splitlines() if "xxx" in one]
    assert " -> 401 " in line
    assert len(line) < 400
    assert PROMPT not in line


@pytest.mark.parametrize("path", [MESSAGES, f"{MESSAGES}/count_tokens"])
def test_an_error_of_the_model_server_has_anthropics_shape(
    gateway: RunningGateway, model_server: Start, path: str
) -> None:
    model_server(error(b"400 Bad Request", code=400, message="no", type="invalid_request_error"))
    response, body = gateway.request("POST", path, body=ASK)
    assert response.status == 400
    assert json.loads(body) == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "no"},
        "request_id": response.headers["request-id"],
    }


def test_an_error_of_the_model_server_has_openais_shape(
    gateway: RunningGateway, model_server: Start
) -> None:
    model_server(error(b"400 Bad Request", code=400, message="no", type="invalid_request_error"))
    response, body = gateway.request("POST", CHAT, body=ASK)
    assert response.status == 400
    assert json.loads(body)["error"] == {
        "message": "no",
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }


def test_what_the_model_server_cannot_do_is_the_clients_mistake_and_not_worth_a_repetition(
    gateway: RunningGateway, model_server: Start
) -> None:
    model_server(error(b"501 Not Implemented", code=501, message="no embeddings", type="x"))
    response, body = gateway.request("POST", "/v1/embeddings", body=b"{}")
    assert response.status == 400
    assert json.loads(body)["error"]["message"] == "no embeddings"


def test_who_shows_no_key_is_told_the_command_that_shows_it(gateway: RunningGateway) -> None:
    _, refused = gateway.request("POST", CHAT, {"x-api-key": "wrong"}, ASK)
    _, front = gateway.request("GET", "/")
    assert "`zluda-stack connect env`" in json.loads(refused)["error"]["message"]
    assert "<code>zluda-stack connect env</code>" in front.decode()


@pytest.mark.parametrize(
    ("path", "option", "what"),
    [
        ("/v1/embeddings", "--embeddings", "embeddings"),
        ("/v1/rerank", "--reranking", "reranking"),
    ],
)
def test_a_client_is_not_told_to_start_the_model_server_with_other_options(
    gateway: RunningGateway, model_server: Start, path: str, option: str, what: str
) -> None:
    message = f"This server does not support {what}. Start it with `{option}`"
    model_server(error(b"501 Not Implemented", code=501, message=message, type="x"))
    response, body = gateway.request("POST", path, body=b"{}")
    assert response.status == 400
    assert json.loads(body)["error"]["message"] == (
        f"the model server was started for chat, and does no {what}"
    )


@pytest.mark.parametrize("headers", [{}, {"anthropic-version": "2023-06-01"}])
def test_an_unknown_path_is_404_in_the_dialect(
    gateway: RunningGateway, model_server: Start, headers: dict[str, str]
) -> None:
    model_server({})
    response, body = gateway.request("POST", "/v1/nothing", {"x-api-key": KEY, **headers}, b"{}")
    told = json.loads(body)
    assert response.status == 404
    assert (told.get("type") == "error") == bool(headers)
    assert told["error"]["type"] == ("not_found_error" if headers else "invalid_request_error")


def test_a_prompt_above_the_context_is_told_in_the_words_that_claude_code_knows(
    gateway: RunningGateway, model_server: Start
) -> None:
    model_server(
        error(
            b"400 Bad Request",
            code=400,
            message="request (931 tokens) exceeds the available context size (512 tokens)",
            type="exceed_context_size_error",
            n_prompt_tokens=931,
            n_ctx=512,
        )
    )
    response, body = gateway.request("POST", MESSAGES, body=ASK)
    assert response.status == 400
    told = json.loads(body)["error"]
    assert told["type"] == "invalid_request_error"
    assert told["message"] == "prompt is too long: 931 tokens > 512 maximum"
    response, body = gateway.request("POST", CHAT, body=ASK)
    told = json.loads(body)["error"]
    assert (response.status, told["code"]) == (400, "context_length_exceeded")
    assert "maximum context length is 512 tokens" in told["message"]


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("'messages' is required", 400),
        ("image input is not supported - hint: you may need to provide the mmproj", 400),
        ("Conversation roles must alternate user/assistant", 400),
        ("Compute error.", 500),
        ("std::bad_alloc", 500),
        ("", 500),
    ],
)
def test_a_500_is_400_when_the_request_is_at_fault_and_stays_when_the_server_is(
    gateway: RunningGateway, model_server: Start, path: str, message: str, status: int
) -> None:
    model_server(
        error(b"500 Internal Server Error", code=500, message=message, type="server_error")
    )
    response, body = gateway.request("POST", path, body=ASK)
    assert response.status == status
    told = json.loads(body)["error"]
    assert message in told["message"]
    expected = {400: ("invalid_request_error",), 500: ("server_error", "api_error")}[status]
    assert told["type"] in expected


def test_a_500_that_is_no_error_of_llama_cpp_stays_one(
    gateway: RunningGateway, model_server: Start
) -> None:
    model_server(whole(b"<html>", b"text/html", b"500 Internal Server Error"))
    response, body = gateway.request("POST", MESSAGES, body=ASK)
    assert response.status == 500
    assert json.loads(body)["error"]["type"] == "api_error"


ONE_MODEL = whole(
    b'{"object":"list","data":[{"id":"default","aliases":["default","org/real"],"object":"model"}]}'
)


def test_every_name_of_the_model_is_listed_and_found(
    gateway: RunningGateway, model_server: Start
) -> None:
    model_server(ONE_MODEL)
    for path in ("/v1/models", "/v1/models?limit=1000", "/v1/v1/models", "/models"):
        response, body = gateway.request("GET", path)
        assert response.status == 200
        assert [model["id"] for model in json.loads(body)["data"]] == ["default", "org/real"]
    for path, name in (
        ("default", "default"),
        ("org/real", "org/real"),
        ("org%2Freal", "org/real"),
    ):
        response, body = gateway.request("GET", f"/v1/models/{path}")
        assert response.status == 200
        assert (json.loads(body)["id"], json.loads(body)["object"]) == (name, "model")


def test_a_model_that_is_not_served_is_404(gateway: RunningGateway, model_server: Start) -> None:
    model_server(ONE_MODEL)
    response, body = gateway.request("GET", "/v1/models/other")
    assert response.status == 404
    assert json.loads(body)["error"]["code"] == "model_not_found"


def test_a_list_of_models_that_is_none_is_502(gateway: RunningGateway, model_server: Start) -> None:
    for answer in (
        b"[]",
        b"{}",
        b'{"data":[{}]}',
        b'{"data":[{"id":"a","aliases":null}]}',
        b"\xff",
    ):
        server = model_server(whole(answer))
        response, _ = gateway.request("GET", "/v1/models")
        assert response.status == 502
        server.close()


def test_the_models_of_an_absent_server_are_503(gateway: RunningGateway) -> None:
    response, _ = gateway.request("GET", "/v1/models")
    assert response.status == 503


def test_a_key_file_without_a_key_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "key"
    empty.write_text("\n")
    command = [sys.executable, "-m", "zluda_stack.gateway", "--port", "1", "--upstream", "unix:x"]
    done = subprocess.run(
        [*command, "--key-file", str(empty)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "holds no key" in done.stderr
    assert "Traceback" not in done.stderr
