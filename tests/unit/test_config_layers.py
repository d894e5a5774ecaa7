"""Where a setting's value comes from, and what is said when it cannot be one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.command_line import write
from zluda_stack.config import layers
from zluda_stack.config.layers import find_project_file, load
from zluda_stack.config.schema import known_settings
from zluda_stack.errors import UsageError
from zluda_stack.settings import Settings


def error_of(text: str | bytes, tmp_path: Path) -> UsageError:
    """The error that a settings file with this text gives."""
    file = write(tmp_path / "zluda-stack.yml", text)
    with pytest.raises(UsageError) as caught:
        load({}, {}, None, file)
    return caught.value


def test_every_layer_wins_over_the_next(tmp_path: Path) -> None:
    user = write(tmp_path / "user.yml", "port: 1\nthreads: 1\ncontext: 301\nbind: 10.0.0.1\n")
    project = write(tmp_path / "project.yml", "# comment\nport: 2\nthreads: 2\ncontext: 302\n")
    environ = {"ZLUDA_STACK_PORT": "3", "ZLUDA_STACK_THREADS": "3"}

    configured = load({"port": "4"}, environ, project, user)

    assert configured.settings == Settings(port=4, threads=3, context=302, bind="10.0.0.1")
    assert str(configured.origin("port")) == "flag --port"
    assert str(configured.origin("threads")) == "environment ZLUDA_STACK_THREADS"
    assert str(configured.origin("context")) == f"project file {project}:4"
    assert str(configured.origin("bind")) == f"user file {user}:4"
    assert str(configured.origin("gpu")) == "default"
    assert not configured.given("gpu")


def test_a_context_may_be_written_with_a_k_in_every_layer(tmp_path: Path) -> None:
    file = write(tmp_path / "zluda-stack.yml", "context: 32k\n")

    assert load({}, {}, None, file).settings.context == 32768
    assert load({"context": "16K"}, {}, None, file).settings.context == 16384
    assert load({}, {"ZLUDA_STACK_CONTEXT": "8k"}, None, file).settings.context == 8192


@pytest.mark.parametrize("text", ["k", "auto", "32x", "99999999999999999999k", "64G"])
def test_a_context_that_is_no_number_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected a whole number from 256"):
        load({"context": text}, {}, None, tmp_path / "missing.yml")


def test_nothing_given_is_the_defaults(tmp_path: Path) -> None:
    configured = load({}, {"PATH": "/bin"}, None, tmp_path / "missing.yml")

    assert configured.settings == Settings()
    assert configured.origins == {}


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "port: null\n", "port:\n"])
def test_a_file_that_says_nothing_gives_nothing(text: str, tmp_path: Path) -> None:
    file = write(tmp_path / "zluda-stack.yml", text)

    assert load({}, {}, None, file).origins == {}


def test_an_unknown_key_is_named_with_file_line_and_the_nearest_key(tmp_path: Path) -> None:
    error = error_of("gpu: auto\n\nprot: 8080\n", tmp_path)

    assert error.message == f"{tmp_path}/zluda-stack.yml:3: there is no setting 'prot'"
    assert "Did you mean port?" in error.hint


def test_a_hyphen_in_a_key_is_answered_with_the_right_key(tmp_path: Path) -> None:
    assert "Did you mean hsa_override?" in error_of("hsa-override: 11.0.0\n", tmp_path).hint


@pytest.mark.parametrize(
    ("line", "expected", "found"),
    [
        ("port: '8080'", "a whole number from 1 to 65535", "the text '8080'"),
        ("port: 0", "a whole number from 1 to 65535", "the number 0"),
        (f"port: 0x{'f' * 5000}", "a whole number from 1 to 65535", "a number of more than 64"),
        (f"port: {'9' * 5000}", "a whole number from 1 to 65535", "the text '999"),
        ("port: 80.5", "a whole number from 1 to 65535", "the number 80.5"),
        ("port: [1, 2]", "a whole number from 1 to 65535", "a list"),
        ("gpu: no", "text", "the switch false"),
        ("model: {name: x}", "text", "a mapping"),
        ("hsa_override: 11.0", "text", "the number 11.0"),
        ("model: 2026-01-01", "text", "a date"),
        ("engine: podman", "one of auto, docker, embedded", "the text 'podman'"),
        ("accept_cuda_eula: maybe", "true or false", "the text 'maybe'"),
        ("name: Über", "text that matches ^[a-z0-9][a-z0-9_-]{0,39}$", "the text 'Über'"),
        ("port: !!int abc", "a whole number from 1 to 65535", "the text 'abc'"),
        ('port: !!int ""', "a whole number from 1 to 65535", "nothing"),
        ("gpu: !!python/name:os.system x", "text", "a value of the kind"),
    ],
)
def test_a_wrong_value_is_told_with_line_key_expected_and_found(
    line: str, expected: str, found: str, tmp_path: Path
) -> None:
    error = error_of(f"# first line\n{line}\n", tmp_path)

    key = line.partition(":")[0]
    start = f"{tmp_path}/zluda-stack.yml:2: {key}: expected {expected}, found {found}"
    assert error.message.startswith(start)
    assert error.hint


def test_a_word_near_to_a_choice_is_answered_with_it(tmp_path: Path) -> None:
    assert error_of("engine: dokcer\n", tmp_path).hint == "Did you mean docker?"


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("port: 1\nport: 2\n", 2, "port is given again; line 1 gave it first"),
        ("- port\n", 1, "expected `key: value` lines, found a list"),
        ("just words\n", 1, "expected `key: value` lines, found text"),
        ("\n42\n", 2, "expected `key: value` lines, found a number"),
        ("port: 1\n\tgpu: auto\n", 2, "is not YAML"),
        ("port: 1\ngpu: 'auto\n", 3, "is not YAML"),
        ("port: 1\n---\nport: 2\n", 2, "is not YAML"),
        ("port: *nowhere\n", 1, "is not YAML"),
        ("a: b: c\n", 1, "is not YAML"),
        ("port: 1\ngpu: a\x01b\n", 2, "has the character #x0001"),
        (b"port: 1\ngpu: \xff\xfe\n", 2, "is not UTF-8 text"),
        ("? [a, b]\n: 1\n", 1, "expected the key of a setting, found a list"),
        ("<<: {port: 1}\n", 1, "there is no setting '<<'"),
        ('model: "a\\0b"\n', 1, "model: expected text"),
        ('model: "\\ud800"\n', 1, "model: expected text"),
    ],
)
def test_a_broken_file_is_named_with_the_line(
    text: str | bytes, line: int, problem: str, tmp_path: Path
) -> None:
    error = error_of(text, tmp_path)

    assert error.message.startswith(f"{tmp_path}/zluda-stack.yml:{line}: {problem}")
    assert error.hint


def test_the_hint_of_broken_yaml_names_the_file_that_is_wrong(tmp_path: Path) -> None:
    hint = error_of("port: 'open\n", tmp_path).hint

    assert hint == f"Correct {tmp_path}/zluda-stack.yml in an editor."


def test_aliases_that_would_grow_without_end_are_refused_without_growing(tmp_path: Path) -> None:
    doubling = "".join(
        f"k{n}: &k{n} [{', '.join(['*k' + str(n - 1)] * 9)}]\n" for n in range(1, 30)
    )

    error = error_of(f"k0: &k0 [x]\n{doubling}", tmp_path)

    assert ":1: there is no setting 'k0'" in error.message


def test_a_list_that_contains_itself_is_refused(tmp_path: Path) -> None:
    assert "found a list" in error_of("port: &p [*p]\n", tmp_path).message


def test_a_file_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    assert "is nested too deeply" in error_of("port: " + "[" * 20000, tmp_path).message


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    assert "is larger than 64 KiB" in error_of("#" * 70000, tmp_path).message


def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a file"):
        load({}, {}, None, tmp_path)


def test_an_unknown_variable_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        layers.from_environment({"ZLUDA_STACK_PROT": "1"})

    assert "ZLUDA_STACK_PROT" in caught.value.message
    assert caught.value.hint == "Did you mean ZLUDA_STACK_PORT?"


def test_an_empty_variable_is_not_set() -> None:
    assert layers.from_environment({"ZLUDA_STACK_PORT": "", "ZLUDA_STACK_GPU": ""}) == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("1", True), ("False", False), ("yes", True), ("No", False)],
)
def test_a_variable_may_write_a_switch_as_a_word_or_a_digit(text: str, value: bool) -> None:
    layer = layers.from_environment({"ZLUDA_STACK_ACCEPT_CUDA_EULA": text})

    assert layer["accept_cuda_eula"][0] is value


def test_a_wrong_variable_is_named() -> None:
    with pytest.raises(UsageError, match=r"^ZLUDA_STACK_PORT: expected a whole number.*'80x'"):
        layers.from_environment({"ZLUDA_STACK_PORT": "80x"})


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(UsageError, match="characters that no text has"):
        layers.from_environment({"ZLUDA_STACK_MODEL": "\udcff.gguf"})


def test_an_empty_flag_leaves_the_choice_to_the_program_again(tmp_path: Path) -> None:
    user = write(tmp_path / "user.yml", "hsa_override: 11.0.0\n")

    assert load({"hsa_override": ""}, {}, None, user).settings.hsa_override is None


def test_a_relative_model_path_counts_from_the_folder_of_its_file(tmp_path: Path) -> None:
    project = write(tmp_path / "project" / "zluda-stack.yml", "model: models/my.gguf\n")

    assert load({}, {}, project, tmp_path / "none").settings.model == str(
        tmp_path / "project" / "models" / "my.gguf"
    )


@pytest.mark.parametrize("model", ["smollm2-135m", "/models/my.gguf", "~/my.gguf"])
def test_other_models_of_a_file_stay_as_they_are(model: str, tmp_path: Path) -> None:
    project = write(tmp_path / "zluda-stack.yml", f"model: {model}\n")

    assert load({}, {}, project, tmp_path / "none").settings.model == model


def test_the_nearest_project_file_up_to_the_top_of_the_work_tree_is_found(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / ".git").mkdir(parents=True)
    (tree / "a" / "b").mkdir(parents=True)
    write(tmp_path / "zluda-stack.yml", "port: 1\n")

    assert find_project_file(tree / "a" / "b", home=tmp_path) is None
    top = write(tree / "zluda-stack.yml", "port: 2\n")
    assert find_project_file(tree / "a" / "b", home=tmp_path) == top
    nearer = write(tree / "a" / "zluda-stack.yml", "port: 3\n")
    assert find_project_file(tree / "a" / "b", home=tmp_path) == nearer


def test_outside_home_and_work_trees_no_parent_is_asked(tmp_path: Path) -> None:
    write(tmp_path / "zluda-stack.yml", "bind: 0.0.0.0\n")
    (tmp_path / "inner").mkdir()

    assert find_project_file(tmp_path / "inner", home=tmp_path / "elsewhere") is None
    assert find_project_file(tmp_path, home=tmp_path / "elsewhere") is not None


def test_every_setting_says_what_it_is_and_what_it_takes() -> None:
    for setting in known_settings().values():
        assert setting.help.endswith(".")
        assert setting.expected


def test_a_certificate_is_found_from_wherever_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    project = write(tmp_path / "project" / "zluda-stack.yml", "tls_cert: keep/cert.pem\n")
    read = load({"tls_key": "key.pem"}, {}, project, tmp_path / "none").settings
    assert read.tls_cert == str(tmp_path / "project" / "keep" / "cert.pem")
    assert read.tls_key == str(tmp_path / "key.pem")


def test_what_is_set_once_has_no_flag_and_all_else_has_one() -> None:
    without = {key for key, setting in known_settings().items() if not setting.flag}
    assert without == {"allow_origins", "queue", "slots"}
