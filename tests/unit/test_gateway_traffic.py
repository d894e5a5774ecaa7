"""The endpoint as a process between many clients and scripted model servers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.client
import json
import random
import re
import signal
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.certificates import self_signed
from tests.fake_upstream import (
    FakeModelServer,
    Script,
    message_events,
    stream,
    sudden_death,
    whole,
)
from tests.running_gateway import CHAT, KEY, MESSAGES, RunningGateway

# A path that the endpoint does not know passes as it is, and needs a place like all others.
WORK = "/completion"
PROMPT = "a-secret-prompt"
OK = whole(b'{"status":"ok"}')

Started = Callable[..., RunningGateway]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Started]:
    """Starts endpoints with options of the test's."""
    running: list[RunningGateway] = []

    def started(*options: str, drain: int = 5) -> RunningGateway:
        running.append(RunningGateway(tmp_path, drain, *options))
        return running[-1]

    yield started
    for one in running:
        one.stop()


@pytest.fixture
def serve() -> Iterator[Callable[[Path, Script], FakeModelServer]]:
    """Starts scripted model servers that are always healthy."""
    servers: list[FakeModelServer] = []

    def started(path: Path, script: Script) -> FakeModelServer:
        play = {"/health": OK, "/props": whole(b'{"total_slots":64}'), "": script}
        servers.append(FakeModelServer(path, play))
        return servers[-1]

    yield started
    for server in servers:
        server.close()


Serve = Callable[[Path, Script], FakeModelServer]


def held_until(event: threading.Event, body: bytes = b"{}") -> Script:
    """Answers when the test says so."""

    async def script(writer: asyncio.StreamWriter) -> None:
        while not event.is_set():
            await asyncio.sleep(0.01)
        await whole(body)(writer)

    return script


def sent(
    gateway: RunningGateway, body: bytes = b"{}", **headers: str
) -> http.client.HTTPConnection:
    """A request that is on its way."""
    connection = gateway.connect()
    connection.request("POST", WORK, body, {"x-api-key": KEY, **headers})
    return connection


def until(true: Callable[[], object], seconds: float = 10) -> None:
    """Wait for what must become true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def metrics(gateway: RunningGateway) -> dict[str, float]:
    """The value of each sample, by name{label=value,...}."""
    response, body = gateway.request("GET", "/metrics")
    assert response.status == 200
    found = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


def up(gateway: RunningGateway) -> float:
    """How many servers are well, as far as the endpoint knows."""
    found = metrics(gateway).items()
    return sum(value for name, value in found if name.startswith("zluda_stack_server_up{"))


def line(key: str, rest: str) -> str:
    return f"{hashlib.sha256(key.encode()).hexdigest()} {rest}\n"


def test_a_key_above_its_quota_is_told_when_to_come_again_in_its_dialect(
    start: Started, serve: Serve, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text(line("zs-guest", "name=guest per-minute=2"))
    gateway = start("--key-hashes", str(keys))
    serve(gateway.socket, OK)
    guest = {"x-api-key": "zs-guest"}
    answers = [gateway.request("POST", WORK, guest, b"{}")[0].status for _ in range(3)]
    assert answers == [200, 200, 429]
    response, body = gateway.request("POST", MESSAGES, guest, b"{}")
    told = json.loads(body)["error"]
    assert (response.status, told["type"]) == (429, "rate_limit_error")
    assert 1 <= int(response.headers["retry-after"]) <= 60
    assert "guest" in told["message"]
    _, body = gateway.request("POST", CHAT, guest, b"{}")
    assert json.loads(body)["error"]["code"] == "rate_limit_exceeded"
    # What costs the model server nothing is free, and so is the owner.
    assert gateway.request("GET", "/v1/models", guest)[0].status != 429
    assert gateway.request("POST", WORK, body=b"{}")[0].status == 200
    # Without a restart:
    keys.write_text(line("zs-guest", "name=guest per-minute=100"))
    assert gateway.request("POST", WORK, guest, b"{}")[0].status == 200
    keys.write_text("")
    assert gateway.request("POST", WORK, guest, b"{}")[0].status == 401


def test_tokens_count_against_the_quota_of_a_day(
    start: Started, serve: Serve, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text(line("zs-guest", "name=guest tokens-per-day=10"))
    gateway = start("--key-hashes", str(keys))
    usage = b'{"usage":{"input_tokens":6,"cache_read_input_tokens":1000,"output_tokens":4}}'
    serve(gateway.socket, whole(usage))
    guest = {"x-api-key": "zs-guest"}
    assert gateway.request("POST", WORK, guest, b"{}")[0].status == 200
    response, body = gateway.request("POST", WORK, guest, b"{}")
    assert response.status == 429
    assert "10 tokens of today" in body.decode()
    assert 1 <= int(response.headers["retry-after"]) <= 86_400


def test_no_more_requests_than_slots_reach_the_server_and_the_rest_come_in_turn(
    start: Started, serve: Serve
) -> None:
    gateway = start("--slots", "2", "--queue", "3")
    go_on = threading.Event()
    server = serve(gateway.socket, held_until(go_on))
    waiting = [sent(gateway) for _ in range(5)]
    until(lambda: metrics(gateway)["zluda_stack_queue_length{}"] == 3)
    until(lambda: len(server.requests) == 2)
    response, body = gateway.request("POST", WORK, body=b"{}")
    assert response.status == 429
    assert int(response.headers["retry-after"]) >= 1
    assert "queue is full" in body.decode()
    go_on.set()
    assert [connection.getresponse().status for connection in waiting] == [200] * 5
    assert len(server.requests) == 5


def test_a_client_that_leaves_the_queue_frees_its_place_there(start: Started, serve: Serve) -> None:
    gateway = start("--slots", "1", "--queue", "1")
    go_on = threading.Event()
    server = serve(gateway.socket, held_until(go_on))
    running, waiting = sent(gateway), sent(gateway)
    until(lambda: metrics(gateway)["zluda_stack_queue_length{}"] == 1)
    waiting.sock.close()
    waiting.close()
    until(lambda: metrics(gateway)["zluda_stack_queue_length{}"] == 0, seconds=1)
    go_on.set()
    assert running.getresponse().status == 200
    assert len(server.requests) == 1
    assert metrics(gateway)["zluda_stack_aborts_total{key=default}"] == 1


def test_the_slots_are_asked_of_the_server_when_nobody_says(start: Started) -> None:
    gateway = start("--queue", "5")
    slots = f"zluda_stack_slots{{server=unix:{gateway.socket}}}"

    def has(count: int) -> bool:
        return metrics(gateway).get(slots) == count

    for count in (3, 5):  # it may be started anew with another number
        props = whole(b'{"total_slots":%d}' % count)
        server = FakeModelServer(gateway.socket, {"/health": OK, "/props": props})
        until(partial(has, count))
        server.close()
        assert gateway.request("POST", WORK, body=b"{}")[0].status == 503


def opening(text: str) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": text}]}).encode()


def test_a_conversation_stays_with_its_server_and_others_are_spread(
    start: Started, serve: Serve, tmp_path: Path
) -> None:
    second = tmp_path / "second.sock"
    gateway = start("--upstream", f"unix:{second}")
    servers = [serve(path, OK) for path in (gateway.socket, second)]
    until(lambda: up(gateway) == 2)
    for _ in range(3):
        for talk in ("one", "two", "three", "four"):
            response, _ = gateway.request("POST", WORK, body=opening(talk))
            assert response.status == 200
    bodies = [set(server.bodies(WORK)) for server in servers]
    assert not bodies[0] & bodies[1]
    assert [len(found) for found in bodies] == [2, 2]


def test_a_server_that_dies_in_mid_run_costs_no_request_that_had_no_byte_yet(
    start: Started, serve: Serve, tmp_path: Path
) -> None:
    """Half of the conversations live at the server that dies, and go on at the other."""
    second = tmp_path / "second.sock"
    gateway = start("--upstream", f"unix:{second}")
    serve(gateway.socket, OK)
    mortal = FakeModelServer(second, OK)
    until(lambda: up(gateway) == 2)
    talks = [f"talk {number}" for number in range(10)]
    for talk in talks:
        assert gateway.request("POST", WORK, body=opening(talk))[0].status == 200
    assert len(mortal.bodies(WORK)) == 5
    mortal.close()
    for talk in talks:
        assert gateway.request("POST", WORK, body=opening(talk))[0].status == 200
    assert up(gateway) == 1
    reborn = serve(second, OK)
    until(lambda: up(gateway) == 2)
    for number in range(4):
        gateway.request("POST", WORK, body=opening(f"new {number}"))
    assert reborn.bodies(WORK)


def test_a_request_that_kills_its_server_is_tried_once_more_and_not_on_all(
    start: Started, serve: Serve, tmp_path: Path
) -> None:
    paths = [tmp_path / f"{name}.sock" for name in ("second", "third")]
    gateway = start(*(word for path in paths for word in ("--upstream", f"unix:{path}")))
    servers = [serve(path, sudden_death) for path in (gateway.socket, *paths)]
    response, _ = gateway.request("POST", WORK, body=b"{}")
    assert response.status == 502
    assert sum(len(server.bodies(WORK)) for server in servers) == 2


def test_an_answer_that_has_begun_is_not_begun_again(
    start: Started, serve: Serve, tmp_path: Path
) -> None:
    second = tmp_path / "second.sock"
    gateway = start("--upstream", f"unix:{second}")
    servers = [
        serve(path, stream(b"data: 1\n\n", then=sudden_death)) for path in (gateway.socket, second)
    ]
    response, body = gateway.request("POST", WORK, body=b"{}")
    assert response.status == 200
    assert body.startswith(b"data: 1\n\n")
    assert b"stopped" in body
    assert sum(len(server.bodies(WORK)) for server in servers) == 1


def test_models_are_found_by_name(start: Started, serve: Serve, tmp_path: Path) -> None:
    paths = {name: tmp_path / f"{name}.sock" for name in ("coder", "small")}
    options = (("--upstream", f"{name}=unix:{path}") for name, path in paths.items())
    gateway = start(*(word for pair in options for word in pair))
    servers = {name: serve(path, OK) for name, path in paths.items()}
    for model in ("small", "coder", "small"):
        body = json.dumps({"model": model}).encode()
        assert gateway.request("POST", WORK, body=body)[0].status == 200
    assert [len(servers[name].bodies(WORK)) for name in ("coder", "small")] == [1, 2]


def test_sigterm_sends_away_what_waits_and_lets_end_what_runs(start: Started, serve: Serve) -> None:
    gateway = start("--slots", "1")
    go_on = threading.Event()
    serve(gateway.socket, held_until(go_on))
    running, waiting = sent(gateway), sent(gateway)
    until(lambda: metrics(gateway)["zluda_stack_queue_length{}"] == 1)
    gateway.process.send_signal(signal.SIGTERM)
    answer = waiting.getresponse()
    assert (answer.status, answer.headers["retry-after"]) == (429, "1")
    assert "shutting down" in answer.read().decode()
    go_on.set()
    assert running.getresponse().status == 200
    assert gateway.process.wait(10) == -signal.SIGTERM


async def _abort_streams(port: int, count: int, rng: random.Random) -> None:
    """Open `count` streams at once and leave each at a moment of its own within a second."""

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST {WORK} HTTP/1.1\r\nHost: x\r\nx-api-key: {KEY}\r\nContent-Length: 2\r\n\r\n"
        writer.write(head.encode() + b"{}")
        with_reset = rng.random() < 0.5
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(reader.read(-1), rng.random())
        if with_reset:
            writer.transport.abort()
        else:
            writer.close()

    await asyncio.gather(*(one() for _ in range(count)))


async def endless(writer: asyncio.StreamWriter) -> None:
    async def beat(_: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"9\r\ndata: 1\n\n\r\n")
            await writer.drain()
            await asyncio.sleep(0.02)

    with contextlib.suppress(ConnectionError):
        await stream(b"data: 0\n\n", then=beat)(writer)


def test_two_hundred_streams_that_are_left_leave_nothing_behind(
    start: Started, serve: Serve
) -> None:
    """Slots, places in the queue, sockets and memory are as before."""
    gateway = start("--slots", "16", "--queue", "200")
    serve(gateway.socket, endless)
    process = psutil.Process(gateway.process.pid)
    rng = random.Random(5)  # noqa: S311
    running = f"zluda_stack_running{{server=unix:{gateway.socket}}}"
    sizes: list[int] = []
    files: list[int] = []
    for _ in range(4):
        asyncio.run(_abort_streams(gateway.port, 200, rng))

        def is_empty() -> bool:
            found = metrics(gateway)
            return found[running] == 0 and found["zluda_stack_queue_length{}"] == 0

        until(is_empty, seconds=1)
        until(lambda: process.num_fds() <= (files[0] if files else 30))
        files.append(process.num_fds())
        sizes.append(process.memory_info().rss)
    assert sizes[-1] - sizes[1] < 3_000_000
    found = metrics(gateway)
    assert found["zluda_stack_aborts_total{key=default}"] == 800
    assert "internal error" not in gateway.log.read_text()


def test_metrics_need_a_key_and_tell_tokens_and_times_but_no_secret(
    start: Started, serve: Serve, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text(line("zs-guest", "name=guest"))
    gateway = start("--key-hashes", str(keys))
    events = message_events("Hello", " there")
    serve(gateway.socket, stream(*events))
    body = json.dumps(
        {
            "model": "m",
            "stream": True,
            "max_tokens": 9,
            "messages": [{"role": "user", "content": PROMPT}],
        }
    ).encode()
    response, _ = gateway.request("POST", MESSAGES, {"x-api-key": "zs-guest"}, body)
    assert response.status == 200
    gateway.request("GET", f"/{PROMPT}", {"x-api-key": "wrong"})
    assert gateway.request("GET", "/metrics", {})[0].status == 401
    found = metrics(gateway)
    route = f"route={MESSAGES},status=200"
    assert found[f"zluda_stack_requests_total{{key=guest,{route}}}"] == 1
    assert found["zluda_stack_requests_total{key=none,route=other,status=401}"] == 1
    kinds = {"computed": 7, "cached": 5, "generated": 2}
    for kind, count in kinds.items():
        assert found[f"zluda_stack_tokens_total{{key=guest,kind={kind}}}"] == count
    assert found["zluda_stack_time_to_first_token_seconds_count{}"] == 1
    assert found["zluda_stack_queue_wait_seconds_count{}"] == 1
    assert found["process_resident_memory_bytes{}"] > 1_000_000
    text = gateway.request("GET", "/metrics")[1].decode()
    assert not any(secret in text for secret in (PROMPT, KEY, "zs-guest", "Hello"))


def test_a_key_of_somebody_else_sees_its_own_series_only(
    start: Started, serve: Serve, tmp_path: Path
) -> None:
    hashes = tmp_path / "hashes"
    hashes.write_text("".join(line(f"zs-{name}", f"name={name}") for name in ("a", "b")))
    gateway = start("--key-hashes", str(hashes))
    serve(gateway.socket, whole(b'{"usage":{"prompt_tokens":9,"completion_tokens":2}}'))
    for name in ("a", "b"):
        gateway.request("POST", WORK, {"x-api-key": f"zs-{name}"}, b"{}")
    text = gateway.request("GET", "/metrics", {"x-api-key": "zs-a"})[1].decode()
    lines = [one for one in text.splitlines() if not one.startswith("#")]
    assert f'zluda_stack_requests_total{{key="a",route="{WORK}",status="200"}} 1.0' in lines
    assert lines
    assert all('key="a"' in one for one in lines)
    assert f"key=b,route={WORK},status=200" in " ".join(metrics(gateway))


def test_the_log_tells_whose_request_it_was_where_it_went_and_what_it_cost(
    start: Started, serve: Serve
) -> None:
    gateway = start()
    serve(gateway.socket, whole(b'{"usage":{"prompt_tokens":9,"completion_tokens":2}}'))
    gateway.request("POST", WORK, body=PROMPT.encode())
    gateway.process.terminate()
    gateway.process.wait(20)
    (told,) = [one for one in gateway.log.read_text().splitlines() if f"POST {WORK}" in one]
    where = re.escape(f"server=unix:{gateway.socket}")
    assert re.search(rf" key=default {where} waited=0\.\d+ tokens=9\+0\+2 ok$", told)
    assert PROMPT not in told


ORIGIN = "https://chat.example.org"
BROWSER = {"Origin": ORIGIN, "x-api-key": KEY}
QUESTION = {
    "Origin": ORIGIN,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization, content-type",
}


def from_llama(body: bytes) -> Script:
    """An answer of a server that lets all pages in, as llama.cpp's does without a key."""

    async def script(writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
            b"Access-Control-Allow-Origin: *\r\n\r\n%s" % (len(body), body)
        )
        await writer.drain()

    return script


def test_no_web_page_is_let_in_unless_its_origin_was_named(start: Started, serve: Serve) -> None:
    gateway = start()
    serve(gateway.socket, from_llama(b"{}"))
    response, _ = gateway.request("POST", WORK, BROWSER, b"{}")
    assert response.status == 200
    assert not [name for name in response.headers if name.lower().startswith("access-control")]
    assert gateway.request("OPTIONS", WORK, QUESTION)[0].status == 401


def test_a_page_whose_origin_was_named_may_ask_and_read_and_no_other(
    start: Started, serve: Serve
) -> None:
    gateway = start("--allow-origin", ORIGIN)
    serve(gateway.socket, from_llama(b"{}"))
    response, _ = gateway.request("OPTIONS", WORK, QUESTION)
    assert response.status == 204
    assert response.headers["access-control-allow-origin"] == ORIGIN
    assert response.headers["access-control-allow-headers"] == "authorization, content-type"
    for key, status in ((KEY, 200), ("wrong", 401)):
        response, _ = gateway.request("POST", WORK, {**BROWSER, "x-api-key": key}, b"{}")
        assert response.status == status
        assert response.headers["access-control-allow-origin"] == ORIGIN
        assert response.headers["vary"] == "origin"
    other = {"Origin": "https://evil.example"}
    assert gateway.request("OPTIONS", WORK, {**QUESTION, **other})[0].status == 401
    response, _ = gateway.request("POST", WORK, {**BROWSER, **other}, b"{}")
    assert response.headers["access-control-allow-origin"] is None


def test_what_is_captured_is_whole_is_the_owners_alone_and_is_warned_of(
    start: Started, serve: Serve, tmp_path: Path
) -> None:
    folder = tmp_path / "captured"
    gateway = start("--capture", str(folder))
    serve(gateway.socket, stream(b"data: 1\n\n", b"data: 2\n\n"))
    headers = {"x-api-key": KEY}
    response, body = gateway.request("POST", WORK, headers, PROMPT.encode())
    gateway.request("POST", WORK, {"x-api-key": "wrong"}, b"of a stranger")
    name = response.headers["request-id"]
    assert (folder / f"{name}.request").read_text() == PROMPT
    assert (folder / f"{name}.answer").read_bytes() == body == b"data: 1\n\ndata: 2\n\n"
    assert len(list(folder.iterdir())) == 2
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    assert f"EVERY PROMPT AND EVERY ANSWER IS WRITTEN TO {folder}" in gateway.log.read_text()
    assert not any(KEY.encode() in file.read_bytes() for file in folder.iterdir())


def test_a_capture_that_finds_no_room_fails_no_request(
    start: Started, serve: Serve, tmp_path: Path
) -> None:
    folder = tmp_path / "captured"
    gateway = start("--capture", str(folder))
    serve(gateway.socket, OK)
    folder.rmdir()
    assert gateway.request("POST", WORK, body=b"{}")[0].status == 200
    assert "cannot keep req_" in gateway.log.read_text()


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its key."""
    return self_signed(tmp_path, "IP:127.0.0.1")


def test_with_a_certificate_it_speaks_tls_and_nothing_else(
    start: Started, serve: Serve, certificate: tuple[Path, Path]
) -> None:
    chain, key = certificate
    gateway = start("--tls-cert", str(chain), "--tls-key", str(key))
    serve(gateway.socket, OK)
    context = ssl.create_default_context(cafile=str(chain))
    connection = http.client.HTTPSConnection("127.0.0.1", gateway.port, context=context)
    connection.request("POST", WORK, b"{}", {"x-api-key": KEY})
    assert connection.getresponse().status == 200
    with pytest.raises((http.client.HTTPException, OSError)):
        gateway.request("POST", WORK, body=b"{}")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--tls-cert", "c"], "belong together"),
        (["--tls-cert", "c", "--tls-key", "k"], "cannot use the certificate"),
        (["--queue", "0"], "no whole number above 0"),
        (["--upstream", "ftp://x"], "no [NAME=]http://HOST:PORT or unix:PATH"),
        (["--capture", "/dev/null/x"], "cannot capture"),
    ],
)
def test_options_that_cannot_be_are_refused_in_a_line(
    options: list[str], told: str, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text(KEY)
    command = ["-m", "zluda_stack.gateway", "--port", "1", "--upstream", "unix:x"]
    done = subprocess.run(
        [sys.executable, *command, "--key-file", str(key), *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_key_file_nothing_starts() -> None:
    command = ["-m", "zluda_stack.gateway", "--port", "1", "--upstream", "unix:x"]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "nobody could use it" in done.stderr
