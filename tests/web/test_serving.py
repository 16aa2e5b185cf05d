"""The prediction service: right answers to all, one sentence to what cannot be answered."""

import asyncio
import io

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from fastapi.testclient import TestClient

from kscn import KSCN, KSCNPlus
from kscn.web.predicting import Predictor
from kscn.web.serving import prediction_app

HERE = "http://127.0.0.1:8000"
NPY = {"content-type": "application/octet-stream"}


@pytest.fixture(scope="module")
def client(model):
    """A service that takes images of 8 x 8 in bodies of at most 100,000 bytes."""
    predictor = Predictor(model, (8, 8), white=16)
    with TestClient(prediction_app(predictor, most_bytes=100_000, wait=0), HERE) as made:
        yield made


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def picture(pixels, kind="PNG", **options):
    image = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def columns(response):
    assert response.status_code == 200, response.text
    rows = response.json()["predictions"]
    return [np.array([row[name] for row in rows]) for name in ("label", "probability", "residual")]


def refusal(response, status):
    """The one sentence of a refusal."""
    assert response.status_code == status, response.text
    assert list(response.json()) == ["error"]
    sentence = response.json()["error"]
    assert "\n" not in sentence and sentence.endswith(".")
    return sentence


def same_as_model(response, model, samples):
    label, probability, residual = columns(response)
    np.testing.assert_array_equal(label, model.predict(samples))
    np.testing.assert_allclose(probability, model.predict_proba(samples).max(axis=1))
    np.testing.assert_allclose(residual, -model.score_samples(samples))


def test_json_and_npy_get_what_the_model_says(client, model, images):
    some = images[:20]
    same_as_model(client.post("/predict", json={"samples": some.tolist()}), model, some)
    same_as_model(client.post("/predict", json=some.tolist()), model, some)
    for stored in (some, some.astype(">f4"), np.asfortranarray(some), some.astype(float)):
        same_as_model(client.post("/predict", content=npy(stored), headers=NPY), model, some)


def test_one_sample_needs_no_batch_axis(client, model, images):
    same_as_model(client.post("/predict", json=images[0].tolist()), model, images[:1])
    same_as_model(client.post("/predict", content=npy(images[0]), headers=NPY), model, images[:1])


def test_images_come_as_body_or_as_files_of_a_form(client, model, images):
    bright = (images[:3] * 15).astype(np.uint8)  # 0 to 240, so white is 17 times what it was
    expected = model.predict(images[:3] * (240 / 255))
    for pixels, label in zip(bright, expected, strict=True):
        sent = picture(pixels)
        answer = client.post("/predict", content=sent, headers={"content-type": "image/png"})
        assert columns(answer)[0].tolist() == [label]
    files = [("files", (f"{i}.png", picture(pixels))) for i, pixels in enumerate(bright)]
    assert columns(client.post("/predict", files=files))[0].tolist() == expected.tolist()
    colour = picture(np.repeat(bright[0][..., None], 3, axis=2), "JPEG", quality=100)
    answer = client.post("/predict", content=colour, headers={"content-type": "image/jpeg"})
    assert columns(answer)[0].tolist() == [expected[0]]


@pytest.mark.parametrize(
    "network", [KSCN(2, pretrain_epochs=1, epochs=1), KSCNPlus(2, epochs=1, refine=True)]
)
def test_white_is_the_largest_value_that_a_network_was_fitted_on(network, images):
    fitted = network.set_params(random_state=0).fit(images[:100])
    answer = Predictor(fitted, (8, 8)).read("image/png", [picture(np.full((8, 8), 255, np.uint8))])
    assert np.allclose(answer, images[:100].max())


def test_samples_of_another_shape_or_size_are_refused(client, images):
    words = refusal(client.post("/predict", json=np.zeros((2, 7, 8)).tolist()), 422)
    assert "(2, 7, 8)" in words and "(n, 8, 8)" in words
    huge = np.full((1, 8, 8), 1e300).tolist()
    assert "infinity" in refusal(client.post("/predict", json=huge), 422)
    nan = npy(np.full((1, 8, 8), np.nan))
    assert "NaN" in refusal(client.post("/predict", content=nan, headers=NPY), 422)


def test_broken_and_unfitting_images_are_refused(client, images):
    good = picture(np.zeros((8, 8), np.uint8))
    png = {"content-type": "image/png"}
    words = refusal(
        client.post("/predict", content=picture(np.zeros((9, 7), np.uint8)), headers=png), 422
    )
    assert "7 x 9" in words and "(8, 8)" in words
    refusal(client.post("/predict", content=good[:40], headers=png), 400)
    refusal(client.post("/predict", content=b"GIF89a", headers=png), 400)
    refusal(client.post("/predict", data={"a": "b"}, files={}), 415)
    form = {"content-type": "multipart/form-data; boundary=x"}
    refusal(client.post("/predict", content=b"--x\r\nnothing", headers=form), 400)
    refusal(
        client.post("/predict", content=b"", headers={"content-type": "multipart/form-data"}), 400
    )


def test_vectors_take_no_images():
    from kscn import KSubspaces

    rng = np.random.default_rng(0)
    model = KSubspaces(2, subspace_dim=1, n_init=1, random_state=0).fit(rng.normal(size=(20, 3)))
    client = TestClient(prediction_app(Predictor(model, (3,)), wait=0), HERE)
    png = {"content-type": "image/png"}
    refusal(client.post("/predict", content=picture(np.zeros((3, 1), np.uint8)), headers=png), 422)
    same_as_model(client.post("/predict", json=[1, 2, 3]), model, np.array([[1.0, 2, 3]]))


def test_a_body_that_is_too_large_is_refused_with_or_without_its_length(client):
    body = b"[" + b"1," * 60_000 + b"1]"
    head = {"content-type": "application/json"}
    assert "100,000 bytes" in refusal(client.post("/predict", content=body, headers=head), 413)

    def pieces():
        for start in range(0, len(body), 1000):
            yield body[start : start + 1000]

    refusal(client.post("/predict", content=pieces(), headers=head), 413)


def test_other_addresses_methods_and_types_get_a_sentence(client):
    refusal(client.get("/nothing"), 404)
    refusal(client.get("/predict"), 405)
    refusal(client.post("/predict", content=b"x", headers={"content-type": "text/plain"}), 415)
    refusal(client.post("/predict", content=b"x"), 415)


def test_the_token_is_asked_for(model, images):
    app = prediction_app(Predictor(model, (8, 8)), token="secret", wait=0)
    client = TestClient(app, HERE)
    body = {"json": images[:1].tolist()}
    wrong = ("secret", "Bearer secreT", "Bearer ", "Bearer sécret".encode())
    for header in ({}, *({"authorization": value} for value in wrong)):
        assert "token" in refusal(client.post("/predict", **body, headers=header), 401)
    good = {"authorization": "Bearer secret"}
    assert client.post("/predict", **body, headers=good).status_code == 200
    for host in ("127.0.0.1", "behind.a.proxy"):  # which names the service as its clients do
        assert client.get("/health", headers={"host": host}).status_code == 200
    assert client.get("/openapi.json").status_code == 200


def test_without_a_token_only_names_of_this_machine_are_answered(model):
    client = TestClient(prediction_app(Predictor(model, (8, 8)), wait=0), HERE)
    for host in ("127.0.0.1:8000", "localhost:1", "LOCALHOST", "[::1]:8000"):
        assert client.get("/health", headers={"host": host}).status_code == 200, host
    for path in ("/health", "/openapi.json", "/predict"):
        for host in ("rebound.example:8000", "[x]", "[::1", "", "a b", "evil@127.0.0.1", "[1:2]"):
            assert client.get(path, headers={"host": host}).status_code == 400, host


def test_answers_for_many_samples_are_computed_in_blocks(model, images):
    whole = Predictor(model, (8, 8))(images)
    blocks = Predictor(model, (8, 8), at_once=4 * 50)(images)
    for column, expected in zip(blocks, whole, strict=True):
        np.testing.assert_allclose(column, expected, rtol=1e-5, atol=1e-9)


def test_health_says_what_is_served(client):
    about = client.get("/health").json()
    assert about == {"status": "ok", "model": "KSubspaces", "clusters": 4, "shape": [8, 8]}


def test_many_at_once_all_get_their_own_answer(model, images):
    httpx = pytest.importorskip("httpx")
    app = prediction_app(Predictor(model, (8, 8)), wait=0.05)
    expected = model.predict(images)

    async def ask():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=HERE) as client:
            bodies = [images[i : i + 1 + i % 3].tolist() for i in range(60)]
            bodies[10] = np.full((1, 8, 8), 1e300).tolist()  # must not spoil its neighbours
            return await asyncio.gather(*(client.post("/predict", json=b) for b in bodies))

    answers = asyncio.run(ask())
    assert answers[10].status_code == 422
    for i, answer in enumerate(answers):
        if i != 10:
            assert columns(answer)[0].tolist() == expected[i : i + 1 + i % 3].tolist()
