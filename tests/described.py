"""What the OpenAPI description says of a request or an answer."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from openapi_schema_validator import OAS31Validator

import zluda_stack.gateway

FILE = Path(zluda_stack.gateway.__file__).with_name("openapi.json")
DOCUMENT: dict[str, Any] = json.loads(FILE.read_bytes())

_MODEL = "/v1/models/"
Json = Any


def operation(method: str, path: str) -> dict[str, Any] | None:
    """What is described of `method` at `path`, None when nothing is."""
    named = path.startswith(_MODEL) and len(path) > len(_MODEL)
    described = DOCUMENT["paths"].get(_MODEL + "{model}" if named else path, {})
    found: dict[str, Any] | None = described.get(method.lower())
    return found


def faults_of_request(method: str, path: str, body: Json) -> list[str]:
    """Where the JSON `body` differs from the description."""
    described = operation(method, path)
    assert described is not None
    return _faults(described["requestBody"]["content"]["application/json"]["schema"], body)


def faults_of_answer(
    method: str, path: str, status: int, headers: dict[str, str], body: bytes
) -> list[str]:
    """Where an answer differs from the description."""
    described = operation(method, path)
    assert described is not None
    answers = described["responses"]
    answer = _resolved(answers.get(str(status)) or answers.get("default"))
    if answer is None:
        return [f"{status} is not described"]
    missing = [
        name for name, told in answer["headers"].items() if not _is_there(name, told, headers)
    ]
    if "content" not in answer:
        return missing
    kind = headers.get("content-type", "").partition(";")[0]
    if kind not in answer["content"]:
        return [*missing, f"{status} of type {kind!r} is not described"]
    told = json.loads(body) if kind == "application/json" else body.decode()
    return [*missing, *_faults(answer["content"][kind].get("schema", {}), told)]


def faults_of_error(dialect: str, body: bytes) -> list[str]:
    """Where an error differs from the shape of `dialect`, "OpenAI" or "Anthropic"."""
    return _faults({"$ref": f"#/components/schemas/{dialect}Error"}, json.loads(body))


def _is_there(name: str, told: dict[str, Any], headers: dict[str, str]) -> bool:
    return name in headers or not _resolved(told).get("required", False)


def _resolved(told: Any) -> Any:
    if isinstance(told, dict) and (pointer := told.get("$ref")):
        told = DOCUMENT
        for part in pointer.removeprefix("#/").split("/"):
            told = told[part]
    return told


def _faults(schema: dict[str, Any], value: Json) -> list[str]:
    errors = _validator(json.dumps(schema)).iter_errors(value)
    return [f"{error.json_path}: {error.message[:200]}" for error in errors]


@cache
def _validator(schema: str) -> OAS31Validator:
    return OAS31Validator({**json.loads(schema), "components": DOCUMENT["components"]})
