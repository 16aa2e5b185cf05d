"""What schemathesis makes of the OpenAPI description never gets the service to fail."""

import pytest

pytest.importorskip("fastapi")
schemathesis = pytest.importorskip("schemathesis")

from hypothesis import HealthCheck, given, settings  # noqa: E402

from kscn.web.predicting import Predictor  # noqa: E402
from kscn.web.serving import prediction_app  # noqa: E402

TOKEN = "secret"
CHECKS = [
    schemathesis.checks.not_a_server_error,
    schemathesis.checks.status_code_conformance,
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_schema_conformance,
]


@pytest.fixture(scope="module")
def described(model):
    """The description of a service that takes images of 8 x 8."""
    predictor = Predictor(model, (8, 8))
    app = prediction_app(predictor, token=TOKEN, most_bytes=100_000, wait=0)
    return schemathesis.openapi.from_asgi("/openapi.json", app)


# Requests by the description, and requests that go against it.
@pytest.mark.parametrize("mode", schemathesis.GenerationMode)
@pytest.mark.parametrize(("path", "method"), [("/predict", "POST"), ("/health", "GET")])
def test_no_request_makes_the_service_fail(described, path, method, mode):
    if mode == schemathesis.GenerationMode.NEGATIVE and method == "GET":
        return  # nothing about it can be wrong

    @settings(max_examples=10, suppress_health_check=list(HealthCheck))
    @given(case=described[path][method].as_strategy(generation_mode=mode))
    def check(case):
        case.call_and_validate(checks=CHECKS, headers={"Authorization": f"Bearer {TOKEN}"})

    check()
