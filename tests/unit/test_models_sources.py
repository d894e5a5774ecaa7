"""Models from a hub and from web servers that do everything wrong: what is ready is whole."""

from __future__ import annotations

import contextlib
import io
import ssl
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from requests.adapters import HTTPAdapter

from tests.certificates import self_signed
from tests.fake_hub import COMMIT, FakeHub, Fault, fake_hub
from tests.unit.fetched import (
    CONTENT,
    FILE,
    REPOSITORY,
    digest,
    file_of,
    hub_model,
    store_of,
    tiny_gguf,
    web_model,
)
from zluda_stack.errors import HostProblem, StackError, UsageError
from zluda_stack.models.session import InsecureRedirect, Session
from zluda_stack.models.store import EntryState
from zluda_stack.progress import Silent

PATH = f"{REPOSITORY}/{FILE}"


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with fake_hub({PATH: CONTENT}) as made:
        yield made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_a_model_of_the_hub_is_fetched_and_what_was_seen_is_recorded(
    hub: FakeHub, root: Path
) -> None:
    store = store_of(root, hub)
    path = store.ensure(hub_model(), Silent())
    assert path.read_bytes() == CONTENT
    record = store.record("tiny")
    assert record is not None
    assert record.hub is not None
    assert (record.hub.repository, record.hub.revision) == (REPOSITORY, COMMIT)
    assert [(file.sha256, file.size) for file in record.files] == [(digest(CONTENT), len(CONTENT))]


def test_what_the_first_pull_saw_is_what_a_later_one_takes(hub: FakeHub, root: Path) -> None:
    store = store_of(root, hub)
    path = store.ensure(hub_model(), Silent())
    path.unlink()
    hub.commit = "f" * 40
    hub.seen.clear()
    assert store.ensure(hub_model(), Silent()).read_bytes() == CONTENT
    assert not [each for each in hub.seen if each.path.startswith("/api/")]
    path.unlink()
    hub.files[PATH] = tiny_gguf(b"another")
    with pytest.raises(HostProblem, match="expected") as caught:
        store.ensure(hub_model(), Silent())
    assert str(len(CONTENT)) in caught.value.message
    assert store.find("tiny") is None


def test_an_update_takes_what_the_hub_has_now(hub: FakeHub, root: Path) -> None:
    store_of(root, hub).ensure(hub_model(), Silent())
    hub.commit, hub.files[PATH] = "f" * 40, tiny_gguf(b"newer")
    store = store_of(root, hub, update=True)
    assert store.ensure(hub_model(), Silent()).read_bytes() == hub.files[PATH]
    record = store.record("tiny")
    assert record is not None
    assert record.hub is not None
    assert record.hub.revision == "f" * 40


def test_a_model_that_changed_at_the_hub_is_refused_with_both_hashes(
    hub: FakeHub, root: Path
) -> None:
    other = tiny_gguf(b"what the catalogue knows")
    with pytest.raises(HostProblem) as caught:
        store_of(root, hub).ensure(hub_model(file_of(other)), Silent())
    assert digest(other) in caught.value.message
    assert digest(CONTENT) in caught.value.message
    assert hub.served() == 0


@pytest.mark.parametrize("fault", [Fault.DROP, Fault.STALL])
def test_good_bytes_are_not_fetched_again(hub: FakeHub, root: Path, fault: Fault) -> None:
    hub.faults = [fault]
    store = store_of(root, hub, stall=0.5)
    assert store.ensure(hub_model(), Silent()).read_bytes() == CONTENT
    assert hub.served() == len(CONTENT)


class Told(Silent):
    """Progress that remembers its steps."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def step(self, text: str) -> None:
        self.steps.append(text)


def test_a_server_that_sends_nothing_more_is_told_of_before_it_is_given_up(
    hub: FakeHub, root: Path
) -> None:
    hub.faults = [Fault.STALL]
    told = Told()
    store_of(root, hub, stall=1).ensure(hub_model(), told)
    waiting = [number for number, step in enumerate(told.steps) if "no byte came for 0" in step]
    (again,) = [number for number, step in enumerate(told.steps) if "trying again" in step]
    assert waiting
    assert max(waiting) < again


def test_a_download_that_is_slow_by_wish_is_not_called_stalled(hub: FakeHub, root: Path) -> None:
    told = Told()
    store_of(root, hub, stall=0.5, limit=len(CONTENT)).ensure(hub_model(), told)
    assert not [step for step in told.steps if "no byte" in step]


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_a_certificate_that_the_user_names_is_trusted(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = self_signed(tmp_path, "IP:127.0.0.1")
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"https://127.0.0.1:{server.server_port}/"
        with pytest.raises(requests.exceptions.SSLError):
            Session().get(url, timeout=5)
        monkeypatch.setenv(variable, str(certificate))
        answer = Session().get(url, timeout=5)
        server.shutdown()
    assert answer.status_code == HTTPStatus.NOT_IMPLEMENTED


@pytest.mark.parametrize("fault", [Fault.CLAIMS_LESS, Fault.CLAIMS_MORE, Fault.SENDS_MORE])
def test_a_lie_about_the_length_is_found_and_the_file_asked_for_again(
    hub: FakeHub, root: Path, fault: Fault
) -> None:
    hub.faults = [fault]
    assert store_of(root, hub).ensure(hub_model(), Silent()).read_bytes() == CONTENT
    hub.faults = [fault] * 20
    with pytest.raises(HostProblem, match=r"expected|should"):
        store_of(root / "other", hub).ensure(hub_model(), Silent())


def test_bytes_of_an_earlier_process_are_not_fetched_again(hub: FakeHub, root: Path) -> None:
    hub.faults = [Fault.DROP] + [Fault.NO_ANSWER] * 20
    with pytest.raises(HostProblem, match="could not be downloaded") as caught:
        store_of(root, hub).ensure(hub_model(), Silent())
    assert "of it are kept" in caught.value.hint
    (entry,) = store_of(root, hub).entries()
    assert (entry.state, entry.bytes) == (EntryState.INCOMPLETE, len(CONTENT) // 2)
    hub.faults = []
    assert store_of(root, hub).ensure(hub_model(), Silent()).read_bytes() == CONTENT
    assert hub.served() == len(CONTENT)


def test_a_file_that_changed_between_two_tries_is_fetched_anew(hub: FakeHub, root: Path) -> None:
    model = web_model(hub, file_of(None))
    hub.faults = [Fault.DROP] + [Fault.NO_ANSWER] * 20
    with pytest.raises(HostProblem):
        store_of(root, hub).ensure(model, Silent())
    hub.faults, hub.files[PATH] = [], tiny_gguf(bytes(300_000))
    assert store_of(root, hub).ensure(model, Silent()).read_bytes() == hub.files[PATH]


def test_wrong_bytes_are_named_by_both_hashes_and_thrown_away(hub: FakeHub, root: Path) -> None:
    hub.faults = [Fault.WRONG_BYTES]
    store = store_of(root, hub)
    with pytest.raises(HostProblem, match="wrong content") as caught:
        store.ensure(hub_model(), Silent())
    wrong = digest(bytes(byte ^ 0xFF for byte in CONTENT))
    assert f"expected sha256 {digest(CONTENT)}, got {wrong}" in caught.value.message
    assert store.entries() == ()
    assert store.ensure(hub_model(), Silent()).read_bytes() == CONTENT


def test_a_wrong_part_leaves_the_good_one(hub: FakeHub, root: Path) -> None:
    parts = {f"big-0000{part}-of-00002.gguf": tiny_gguf(bytes([part]) * 900) for part in (1, 2)}
    hub.files = {f"{REPOSITORY}/{name}": content for name, content in parts.items()}
    model = hub_model(*(file_of(content, name) for name, content in parts.items()))
    hub.faults = [Fault.NO_RANGES, Fault.WRONG_BYTES]
    store = store_of(root, hub)
    with pytest.raises(HostProblem, match=r"big-00002-of-00002\.gguf .* wrong content"):
        store.ensure(model, Silent())
    assert [entry.state for entry in store.entries()] == [EntryState.INCOMPLETE]
    before = hub.served()
    store.ensure(model, Silent())
    assert hub.served() - before == len(parts["big-00002-of-00002.gguf"])


@pytest.mark.parametrize("names", [("a/x.gguf", "b/x.gguf"), ("a\nb.gguf",), ("x" * 250,)])
def test_names_that_cannot_lie_in_one_folder_are_refused(
    hub: FakeHub, root: Path, names: tuple[str, ...]
) -> None:
    hub.files = {f"{REPOSITORY}/{name}": CONTENT for name in names}
    model = hub_model(*(file_of(CONTENT, name) for name in names))
    with pytest.raises(HostProblem, match="cannot be kept under these names"):
        store_of(root, hub).ensure(model, Silent())
    assert hub.served() == 0


def test_wrong_bytes_kept_from_an_earlier_try_are_found_and_fetched_again(
    hub: FakeHub, root: Path
) -> None:
    hub.faults = [Fault.DROP] + [Fault.NO_ANSWER] * 20
    with pytest.raises(HostProblem):
        store_of(root, hub).ensure(hub_model(), Silent())
    (half,) = root.glob("pulls/tiny/*.part")
    half.write_bytes(bytes(half.stat().st_size))
    hub.faults = []
    assert store_of(root, hub).ensure(hub_model(), Silent()).read_bytes() == CONTENT


def test_the_pause_that_the_server_asks_for_is_made(hub: FakeHub, root: Path) -> None:
    hub.faults = [Fault.TOO_MANY, Fault.ERROR, Fault.ERROR]
    pauses: list[float] = []
    store_of(root, hub, pauses=pauses).ensure(hub_model(), Silent())
    assert pauses == [7, 2, 4]


def test_a_server_that_wants_an_hour_is_told_of(hub: FakeHub, root: Path) -> None:
    hub.answers[f"/cdn/{PATH}"] = (429, {"Retry-After": "3600"})
    with pytest.raises(HostProblem, match="asks to wait 3600 seconds"):
        store_of(root, hub).ensure(hub_model(), Silent())


def test_a_circle_of_redirects_is_told(hub: FakeHub, root: Path) -> None:
    hub.redirects[f"/cdn/{PATH}"] = f"/cdn/{PATH}"
    with pytest.raises(HostProblem, match="leads in circles"):
        store_of(root, hub).ensure(hub_model(), Silent())


def test_the_token_goes_to_the_hub_and_not_where_it_leads(hub: FakeHub, root: Path) -> None:
    store_of(root, hub, environ={"HF_TOKEN": "hf_secret"}).ensure(hub_model(), Silent())
    with_token = {each.path for each in hub.seen if "Authorization" in each.headers}
    assert with_token == {
        f"/api/models/{REPOSITORY}",
        f"/{REPOSITORY}/resolve/{COMMIT}/{FILE}",
    }
    assert not any(b"hf_secret" in path.read_bytes() for path in root.rglob("*.json"))


@pytest.mark.parametrize("target", ["http://elsewhere/x", "ftp://elsewhere/x", "//elsewhere:80/x"])
def test_no_redirect_leaves_tls(target: str) -> None:
    answer = requests.Response()
    answer.status_code, answer.url = 302, "https://hub/x"
    answer.headers["Location"] = target
    if target.startswith("//"):
        assert Session().get_redirect_target(answer) == target
    else:
        with pytest.raises(InsecureRedirect, match="from https to"):
            Session().get_redirect_target(answer)


class FakeTls(HTTPAdapter):
    """A server behind TLS that leads to `target`."""

    target = ""

    def send(
        self, request: requests.PreparedRequest, *_: object, **__: object
    ) -> requests.Response:
        answer = requests.Response()
        answer.status_code, answer.url = 302, str(request.url)
        answer.headers["Location"] = self.target
        answer.raw, answer.request = io.BytesIO(), request
        return answer


def test_nothing_is_asked_of_the_place_without_tls(hub: FakeHub) -> None:
    session, adapter = Session(), FakeTls()
    adapter.target = f"{hub.cdn}/cdn/{PATH}"
    session.mount("https://", adapter)
    with pytest.raises(InsecureRedirect):
        session.get("https://hub.example/x")
    assert hub.seen == []


@pytest.mark.parametrize(
    ("status", "headers", "words"),
    [
        (401, {"X-Error-Code": "GatedRepo"}, "accepted its terms"),
        (403, {"X-Error-Code": "GatedRepo"}, "accepted its terms"),
        (401, {}, "has no repository"),
        (404, {"X-Error-Code": "RepoNotFound"}, "has no repository"),
        (400, {"X-Error-Message": "odd"}, "status 400: odd"),
    ],
)
def test_what_the_hub_refuses_is_told_in_words(
    hub: FakeHub, root: Path, status: int, headers: dict[str, str], words: str
) -> None:
    hub.answers[f"/api/models/{REPOSITORY}"] = (status, headers)
    with pytest.raises(HostProblem, match=words) as caught:
        store_of(root, hub).ensure(hub_model(), Silent())
    assert "Traceback" not in caught.value.message
    if "repository" in words or "terms" in words:
        assert "HF_TOKEN" in caught.value.hint


def test_a_wrong_token_is_told_with_its_place(hub: FakeHub, root: Path) -> None:
    hub.answers[f"/api/models/{REPOSITORY}"] = (
        401,
        {"X-Error-Message": "Invalid credentials in Authorization header"},
    )
    root.joinpath(".cache/huggingface").mkdir(parents=True)
    root.joinpath(".cache/huggingface/token").write_text("hf_old\n")
    with pytest.raises(HostProblem, match="does not know the token") as caught:
        store_of(root, hub).ensure(hub_model(), Silent())
    assert "huggingface/token" in caught.value.message
    assert "hf_old" not in caught.value.message


def test_a_revision_and_a_file_that_there_is_not(hub: FakeHub, root: Path) -> None:
    with pytest.raises(UsageError, match="has no revision"):
        store_of(root, hub).ensure(hub_model(revision="0" * 40), Silent())
    with pytest.raises(HostProblem, match=r"has no file gone\.gguf"):
        store_of(root, hub).ensure(hub_model(file_of(None, "gone.gguf")), Silent())


def test_a_page_in_the_place_of_a_model_is_not_taken(hub: FakeHub, root: Path) -> None:
    hub.files[PATH] = b"<html>Please log in</html>"
    with pytest.raises(HostProblem, match="no whole model: it is not a GGUF file"):
        store_of(root, hub).ensure(web_model(hub, file_of(None)), Silent())


def test_a_length_that_nobody_names_is_no_hindrance(hub: FakeHub, root: Path) -> None:
    hub.lengths = False
    model = web_model(hub, file_of(None))
    assert store_of(root, hub).ensure(model, Silent()).read_bytes() == CONTENT


def test_over_http_nothing_is_fetched_without_a_hash(hub: FakeHub, root: Path) -> None:
    model = web_model(hub, file_of(None))
    open_line = type(model)(name="tiny", files=model.files, https="http://models.example/x")
    with pytest.raises(HostProblem, match="anyone can change it"):
        store_of(root, hub).ensure(open_line, Silent())


def test_a_limit_of_speed_is_kept(hub: FakeHub, root: Path) -> None:
    began = time.monotonic()
    store_of(root, hub, limit=len(CONTENT) * 2).ensure(hub_model(), Silent())
    assert time.monotonic() - began >= 0.4


@pytest.fixture(scope="module")
def servers() -> Iterator[FakeHub]:
    with fake_hub({}) as made:
        yield made


FAULTS = st.lists(
    st.sampled_from([fault for fault in Fault if fault is not Fault.STALL]), max_size=10
)


class Case(NamedTuple):
    """A file, what is known of it, and what goes wrong in a first and in a second pull.

    Of a file whose hash nobody knows, other bytes in the middle cannot be told from the right
    ones, when length and ETag are the same.
    """

    size: int
    known: bool
    tags: bool
    first: list[Fault]
    second: list[Fault]

    def faults(self) -> list[list[Fault]]:
        """What goes wrong in three pulls; the last is undisturbed."""
        told = {fault for fault in Fault if self.known or fault is not Fault.WRONG_BYTES}
        return [
            [fault for fault in part if fault in told] for part in (self.first, self.second)
        ] + [[]]


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    case=st.builds(
        Case, st.integers(1, 3000), st.booleans(), st.booleans(), first=FAULTS, second=FAULTS
    )
)
def test_no_sequence_of_faults_makes_a_wrong_file_ready(
    servers: FakeHub, tmp_path_factory: pytest.TempPathFactory, case: Case
) -> None:
    root = tmp_path_factory.mktemp("store")
    content = tiny_gguf(bytes(index % 251 for index in range(case.size)))
    servers.files, servers.etags = {PATH: content}, case.tags
    model = web_model(servers, file_of(content if case.known else None))
    for servers.faults in case.faults():
        store = store_of(root, servers)
        with contextlib.suppress(StackError):
            assert store.ensure(model, Silent()).read_bytes() == content
            break
        assert store.find("tiny") is None
    assert store.find("tiny") is not None
