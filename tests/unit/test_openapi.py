"""The OpenAPI description is a valid one, and open to everyone.

That answers are as it says is shown in test_property_endpoint.py.
"""

from __future__ import annotations

import json

from openapi_spec_validator import OpenAPIV31SpecValidator

from tests import described
from tests.running_gateway import RunningGateway
from zluda_stack.gateway.routes import require_known


def test_the_description_is_valid() -> None:
    OpenAPIV31SpecValidator(described.DOCUMENT).validate()


def test_it_is_served_to_whoever_asks(gateway: RunningGateway) -> None:
    response, body = gateway.request("GET", "/openapi.json", {})
    assert response.status == 200
    assert response.headers["content-type"] == "application/json"
    assert json.loads(body) == described.DOCUMENT


def test_what_it_describes_is_there() -> None:
    for path, operations in described.DOCUMENT["paths"].items():
        for method in operations:
            require_known(method.upper(), path.replace("{model}", "default"))
