"""The GGUF header reader beside the gguf package, and on files that are damaged or hostile."""

from __future__ import annotations

import resource
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.gguf_shapes import SHAPES, write_shape
from zluda_stack.models.gguf_header import read_header


def write_model(path: Path, *, tensors: int = 2) -> Path:
    """A small GGUF file as the gguf package writes it, with every kind of value in its header."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("A model")
    writer.add_array("general.languages", ["en", "de"])
    writer.add_context_length(8192)
    writer.add_rope_freq_base(1e5)
    writer.add_add_bos_token(True)
    writer.add_token_list([f"token {i}" for i in range(300)])
    writer.add_token_types([1] * 300)
    writer.add_chat_template("{{ messages }}" * 1000)
    for index in range(tensors):
        writer.add_tensor(f"blk.{index}.weight", np.ones((32, 64), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("gguf") / "model.gguf")


def test_it_reads_what_the_gguf_package_reads(model: Path) -> None:
    fields = gguf.GGUFReader(model).fields
    facts = read_header(model)
    assert facts.problem is None
    assert facts.path == str(model)
    assert facts.size == model.stat().st_size
    assert facts.architecture == fields["general.architecture"].contents()
    assert facts.name == fields["general.name"].contents()
    assert facts.context_length == fields["llama.context_length"].contents()
    assert facts.chat_template is True


def test_a_model_without_a_template_and_a_length_says_so(tmp_path: Path) -> None:
    path = tmp_path / "bare.gguf"
    writer = gguf.GGUFWriter(path, "clip")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    facts = read_header(path)
    assert (facts.problem, facts.architecture) == (None, "clip")
    assert (facts.context_length, facts.chat_template) == (None, False)


def test_the_shape_is_told_where_it_is_understood(tmp_path: Path) -> None:
    known = read_header(write_shape(tmp_path / "known.gguf", SHAPES["gemma3"]))
    assert known.shape is not None
    assert (known.shape.name, len(known.shape.layers)) == ("gemma3", SHAPES["gemma3"].layers)
    unknown = read_header(write_model(tmp_path / "unknown.gguf"))
    assert (unknown.shape, unknown.problem) == (None, None)


def test_the_parts_of_a_model_count_together_and_a_missing_one_is_named(tmp_path: Path) -> None:
    names = [tmp_path / f"large-0000{number}-of-00002.gguf" for number in (1, 2)]
    for number, path in enumerate(names):
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_uint16("split.count", 2)
        writer.add_uint16("split.no", number)
        writer.add_tensor(f"blk.{number}.weight", np.ones((32, 64), dtype=np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    assert read_header(names[0]).size == sum(path.stat().st_size for path in names)
    assert "name the first" in (read_header(names[1]).problem or "")
    names[1].unlink()
    assert read_header(names[0]).problem == (
        "its part large-00002-of-00002.gguf: No such file or directory"
    )


def test_the_context_length_of_another_architecture_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("qwen3.context_length", 40960)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert read_header(path).context_length is None


def test_a_missing_file_a_folder_and_other_files_have_a_problem(tmp_path: Path) -> None:
    (tmp_path / "page.gguf").write_text("<!doctype html>")
    (tmp_path / "empty.gguf").touch()
    (tmp_path / "pointer.gguf").write_text("version https://git-lfs.github.com/spec/v1\noid x\n")
    problems = {
        name: read_header(tmp_path / name).problem
        for name in ("none.gguf", ".", "page.gguf", "empty.gguf", "pointer.gguf", "nul\0.gguf")
    }
    assert problems["none.gguf"] == "No such file or directory"
    assert problems["."] == "it is a folder, and a model is a .gguf file"
    assert problems["page.gguf"] == problems["empty.gguf"] == "it is not a GGUF file"
    assert "git lfs pull" in (problems["pointer.gguf"] or "")
    assert problems["nul\0.gguf"]


def test_a_big_endian_file_and_an_unknown_version_are_named(tmp_path: Path) -> None:
    for version, word in ((b"\0\0\0\3", "big-endian"), (b"\x63\0\0\0", "version 99")):
        path = tmp_path / "model.gguf"
        path.write_bytes(b"GGUF" + version + bytes(16))
        assert word in (read_header(path).problem or "")


@pytest.mark.parametrize("kept", [5, 20, 100, 2000])
def test_a_file_cut_in_its_header_is_truncated(model: Path, tmp_path: Path, kept: int) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(model.read_bytes()[:kept])
    facts = read_header(path)
    assert "truncated" in (facts.problem or "")
    assert facts.architecture is None


def test_a_download_that_lost_its_last_tensor_is_truncated(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(model.read_bytes()[: -32 * 64 * 4 - 32])
    assert "last tensor" in (read_header(path).problem or "")


def header(pairs: bytes, *, count: int, tensors: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, count) + pairs


def key(name: str, kind: int) -> bytes:
    return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind)


HUGE = 2**63 + 11
HOSTILE = {
    "pairs": header(b"", count=HUGE),
    "tensors": header(b"", count=0, tensors=HUGE),
    "key length": header(struct.pack("<Q", HUGE) + bytes(64), count=1),
    "string length": header(key("general.name", 8) + struct.pack("<Q", HUGE), count=1),
    "array length": header(key("a", 9) + struct.pack("<IQ", 4, HUGE), count=1),
    "string array": header(key("a", 9) + struct.pack("<IQ", 8, HUGE), count=1),
    "element length": header(key("a", 9) + struct.pack("<IQQ", 8, 1, HUGE), count=1),
    "nested array": header(key("a", 9) + struct.pack("<IQ", 9, 1) + bytes(64), count=1),
    "unknown type": header(key("a", 77) + bytes(64), count=1),
    "dimensions": header(struct.pack("<QI", 0, 2**32 - 1) + bytes(64), count=0, tensors=1),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_header_that_claims_the_impossible_is_refused(tmp_path: Path, what: str) -> None:
    path = tmp_path / "hostile.gguf"
    path.write_bytes(HOSTILE[what])
    facts = read_header(path)
    assert facts.problem
    assert facts.context_length is None


def test_a_name_cannot_send_control_characters_to_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    name = b"\x1b[2Jgood\r\n"
    architecture = key("general.architecture", 8) + struct.pack("<Q", 5) + b"llama"
    path.write_bytes(
        header(architecture + key("general.name", 8) + struct.pack("<Q", len(name)) + name, count=2)
    )
    facts = read_header(path)
    assert facts.problem is None
    assert (facts.name or "").isprintable()
    assert "good" in (facts.name or "")


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_damaged_header_raises_or_takes_memory(
    model: Path, tmp_path: Path, data: st.DataObject
) -> None:
    raw = bytearray(model.read_bytes())
    limit = data.draw(st.sampled_from([32, 400, len(raw)]))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(4, limit - 9))
        new = data.draw(st.one_of(st.binary(min_size=1, max_size=8), st.just(b"\xff" * 8)))
        raw[at : at + len(new)] = new
    raw = raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw
    path = tmp_path / "mutated.gguf"
    path.write_bytes(raw)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    facts = read_header(path)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert (facts.problem is None) == (facts.architecture is not None)
    assert grown_kib < 16 * 1024
