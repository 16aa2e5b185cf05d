"""The explorer and its HTTP face: right pages, kept edits, right exports, closed to strangers."""

import csv
import io

import numpy as np
import pytest
from pyarrow import parquet

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from fastapi.testclient import TestClient

from kscn import KSCN, KSubspaces
from kscn.data import Dataset, as_source
from kscn.errors import InputError, ModelFileError
from kscn.web.explorer import Explorer
from kscn.web.exploring import cookie_for, explorer_app, page_path

TOKEN = "a-secret"
HERE = "http://127.0.0.1:1234"
PAGE = f"{HERE}{page_path(TOKEN)}"


def config(samples):
    return {
        "run": {"method": "k-subspaces"},
        "data": {"name": "data", "samples": len(samples), "shape": list(samples.shape[1:])},
    }


@pytest.fixture
def explore(tmp_path):
    """explore(model, samples) -> Explorer of a run in a temporary directory."""
    opened = []

    def make(model, samples, labels=None, k=None, data=None, note=""):
        found = model.labels_ if labels is None else labels
        made = Explorer(
            tmp_path,
            config(samples),
            np.asarray(found),
            k or model.n_clusters,
            model,
            Dataset(as_source(samples if data is None else data, "data"), None, "data"),
            note,
        )
        opened.append(made)
        return made

    yield make
    for one in opened:
        one.close()


@pytest.fixture
def explorer(explore, model, images):
    return explore(model, images)


@pytest.fixture
def client(explorer):
    made = TestClient(explorer_app(explorer, TOKEN), base_url=PAGE)
    made.cookies.set(*cookie_for("127.0.0.1:1234", TOKEN))
    return made


def everybody(explorer, cluster, sort, size=7):
    """All pages of a cluster, one after the other."""
    first = explorer.members(cluster, sort, 0, size)
    pages = [explorer.members(cluster, sort, i, size) for i in range(first["pages"])]
    assert all(len(page["members"]) <= size for page in pages)
    return [one for page in pages for one in page["members"]]


def test_pages_show_every_member_once_in_the_order_asked_for(explorer, model, images):
    residual = model.residuals(images).astype(float)
    share = residual / np.square(images.astype(float)).sum(axis=(1, 2))[:, None]
    own = share[np.arange(120), model.labels_]
    others = share.copy()
    others[np.arange(120), model.labels_] = np.inf
    gap = others.min(axis=1) - own
    for cluster in range(4):
        members = np.flatnonzero(model.labels_ == cluster)
        for sort, score in (("typical", own), ("odd", -own), ("borderline", gap)):
            shown = [one["index"] for one in everybody(explorer, cluster, sort)]
            assert sorted(shown) == members.tolist()
            assert (np.diff(score[shown]) > -1e-6).all()
        shown = everybody(explorer, cluster, "index")
        assert [one["index"] for one in shown] == members.tolist()
        for one in shown:
            assert one["outside"] == pytest.approx(own[one["index"]], abs=2e-6)
            assert one["next"] == others[one["index"]].argmin()
            assert one["picture"].startswith("data:image/png;base64,")


def test_only_the_shown_samples_are_read(explore, model, images, monkeypatch):
    source = as_source(images)
    explorer = explore(model, images, data=source)
    taken, real = [], source.take
    monkeypatch.setattr(source, "take", lambda rows: taken.extend(rows) or real(rows))
    shown = explorer.members(0, "typical", 0, 5)["members"]
    assert taken == [one["index"] for one in shown] and len(taken) == 5


def test_merged_clusters_are_no_longer_each_others_border(explorer):
    one = everybody(explorer, 0, "index")[0]
    explorer.edit({"edit": "merge", "clusters": [one["next"]], "into": 0})
    again = explorer.sample(one["index"], "index", 10)
    assert again["next"] not in (0, one["next"])
    assert again["gap"] >= one["gap"]


def test_a_sample_is_found_on_its_page(explorer):
    for index in (0, 50, 119):
        for sort in ("typical", "borderline", "index"):
            found = explorer.sample(index, sort, 7)
            page = explorer.members(found["cluster"], sort, found["page"], 7)
            assert index in [one["index"] for one in page["members"]]


def test_splitting_finds_the_planes_that_were_merged(explore):
    rng = np.random.default_rng(0)
    bases = np.linalg.qr(rng.standard_normal((3, 8, 2)))[0]
    labels = np.repeat([0, 1, 2], [60, 40, 20])
    samples = np.einsum("nij,nj->ni", bases[labels], rng.standard_normal((120, 2)))
    model = KSubspaces(3, subspace_dim=2, random_state=0).fit(samples)
    explorer = explore(model, samples)
    explorer.edit({"edit": "merge", "clusters": [1], "into": 0})
    said = explorer.split(0)
    assert "60, 40" in said
    now = np.array([one["cluster"] for i in range(120) for one in [explorer.sample(i, "index", 1)]])
    assert len({*zip(now, model.labels_, strict=True)}) == 3  # one to one with the planes
    assert set(now) == {0, 2, 3}


def test_splitting_a_network_run_uses_its_latents(explore, images):
    model = KSCN(
        2, subspace_dim=2, autoencoder_params={"channels": [4], "kernels": [3]},
        pretrain_epochs=1, epochs=1, n_init=1, random_state=0,
    ).fit(images)  # fmt: skip
    explorer = explore(model, images)
    explorer.split(0, 3)
    sizes = {one["id"]: one["size"] for one in explorer.state()["clusters"]}
    assert set(sizes) == {0, 1, 2, 3} and sum(sizes.values()) == 120 and min(sizes.values()) > 0


def test_splits_that_make_no_sense_are_refused(explorer):
    for args in ((0, 1), (0, 21), (99, 2), (-1, 2)):
        with pytest.raises(InputError):
            explorer.split(*args)
    explorer.edit({"edit": "move", "samples": list(range(119)), "cluster": 0})
    explorer.edit({"edit": "move", "samples": [119], "cluster": 1})
    with pytest.raises(InputError, match="too few"):
        explorer.split(1)


def test_edits_are_there_again_and_the_run_is_not_touched(
    explore, explorer, tmp_path, model, images
):
    explorer.edit({"edit": "name", "cluster": 0, "name": "zeros"})
    explorer.split(1)
    explorer.edit({"edit": "flag", "samples": [3], "flagged": True})
    explorer.edit({"edit": "undo"})
    before = explorer.state()
    explorer.close()
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["edits.jsonl"]
    assert explore(model, images).state() == before


def test_edits_of_other_labels_are_refused(explore, explorer, model, images):
    explorer.edit({"edit": "name", "cluster": 0, "name": "zeros"})
    explorer.close()
    with pytest.raises(ModelFileError, match="another run"):
        other = model.labels_.copy()
        other[0] = (other[0] + 1) % 4
        explore(model, images, labels=other)


def test_samples_in_no_cluster_are_shown_moved_and_split(explore, model, images):
    labels = np.where(np.arange(120) % 3, model.labels_, -1)
    explorer = explore(model, images, labels=labels)
    assert {one["id"]: one["size"] for one in explorer.state()["clusters"]}[-1] == 40
    shown = [one["index"] for one in everybody(explorer, -1, "index")]
    assert shown == list(range(0, 120, 3))
    explorer.edit({"edit": "move", "samples": [0], "cluster": 1})
    explorer.edit({"edit": "move", "samples": shown[1:], "cluster": 2})
    explorer.split(2)
    assert -1 not in {one["id"] for one in explorer.state()["clusters"]}


def test_vectors_are_drawn_as_curves_and_told_by_name(explore, tmp_path):
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(20, 1)) * [1, 2, 0], rng.normal(size=(20, 1)) * [0, 1, 9]
    samples = np.concatenate([one, other])
    explorer = explore(
        KSubspaces(2, subspace_dim=1, n_init=1, random_state=0).fit(samples), samples
    )
    low, high = samples.min(), samples.max()
    for shown in everybody(explorer, 0, "typical"):
        expected = (samples[shown["index"]] - low) / (high - low)
        np.testing.assert_allclose(shown["curve"], expected, atol=1e-4)
    full = explorer.sample(5)
    assert [name for name, _ in full["features"]] == ["feature 0", "feature 1", "feature 2"]
    np.testing.assert_allclose([v for _, v in full["features"]], samples[5], rtol=1e-5)


def test_long_vectors_are_averaged(explore):
    wide = np.repeat(np.random.default_rng(0).normal(size=(20, 3)), 100, axis=1)
    explorer = explore(KSubspaces(2, subspace_dim=1, n_init=1, random_state=0).fit(wide), wide)
    assert len(explorer.members(0, "index", size=1)["members"][0]["curve"]) == 48


# Over HTTP ------------------------------------------------------------------------------------


def test_everything_asks_for_the_token(explorer):
    client = TestClient(explorer_app(explorer, TOKEN), base_url=HERE)
    page, name = page_path(TOKEN), cookie_for("127.0.0.1:1234", TOKEN)[0]
    files = ("", "explore.js", "explore.css", "api/state", "labels.csv", "labels.parquet", "no")
    for path in ("/", "/api/state", *(page + file for file in files)):
        assert client.get(path).status_code == 401
        assert client.get(path, params={"token": "wrong"}).status_code == 401
        for value in ("wrong", TOKEN, "é"):
            cookie = f"{name}={value}".encode()
            assert client.get(path, headers={"cookie": cookie}).status_code == 401
    assert client.post(f"{page}api/edits", json={"edit": "undo"}).status_code == 401
    first = client.get(page, params={"token": TOKEN}, follow_redirects=False)
    assert first.status_code == 303 and first.headers["location"] == page
    assert "httponly" in first.headers["set-cookie"].lower()
    assert client.get(page).status_code == 200  # by the cookie
    assert "default-src 'none'" in client.get(page).headers["content-security-policy"]
    assert client.get(f"{page}explore.js").status_code == 200
    assert client.get(f"{page}no").status_code == 404
    assert client.get("/api/state").status_code == 401  # to there, it is not sent


def test_the_cookie_is_of_use_to_one_address_and_port_only(explorer):
    app = explorer_app(explorer, TOKEN)
    with TestClient(app, HERE) as client:
        first = client.get(page_path(TOKEN), params={"token": TOKEN}, follow_redirects=False)
    cookie = first.headers["set-cookie"]
    name, value = cookie.split(";")[0].split("=", 1)
    assert "127.0.0.1" in name and "1234" in name and TOKEN not in cookie
    # Browsers send it to all ports of a host, but only for paths that nobody else knows.
    assert f"Path={page_path(TOKEN)};" in cookie and len(page_path(TOKEN)) > 20
    for host in ("127.0.0.1:1234", "127.0.0.1:1235", "localhost:1234", "127.0.0.1"):
        for called in (name, cookie_for(host, TOKEN)[0]):
            answer = TestClient(app, f"http://{host}{page_path(TOKEN)}").get(
                "api/state", headers={"cookie": f"{called}={value}"}
            )
            assert answer.status_code == (200 if host == "127.0.0.1:1234" else 401), (host, called)
    for page in (page_path(TOKEN), page_path("another-secret")):
        client = TestClient(explorer_app(explorer, "another-secret"), f"{HERE}{page}")
        cookie = {"cookie": f"{name}={value}"}
        assert client.get("api/state", headers=cookie).status_code == 401


def test_other_hosts_and_other_pages_are_turned_away(client):
    for host in ("evil.example:1234", "[x]", "[::1", "127.0.0.1:x", "a@127.0.0.1", ""):
        assert client.get("api/state", headers={"host": host}).status_code == 400
    undo = {"edit": "undo"}
    for origin in ("http://127.0.0.1:9999", "https://127.0.0.1:1234", "null", ""):
        answer = client.post("api/edits", json=undo, headers={"origin": origin})
        assert answer.status_code == 403, origin
    answer = client.post("api/edits", json=undo, headers={"origin": HERE})
    assert answer.status_code == 422 and "nothing to undo" in answer.json()["error"]


def test_bodies_of_edits_are_refused_before_they_are_read(client):
    head = {"content-type": "application/json"}
    long, declared = iter([b"[" * 1_000_000] * 3), {**head, "content-length": "100000000"}
    words = b'{"edit":"flag","flagged":true,"samples":[' + b'"",' * 500_000 + b'""]}'
    for body, headers, status in (
        (long, head, 413),
        (b"{}", declared, 413),
        (words, head, 422),
        (b"{", head, 422),
        (b"", head, 422),
        (b"{}", {"content-type": "text/plain"}, 415),
    ):
        answer = client.post("api/edits", content=body, headers=headers)
        assert answer.status_code == status and answer.json()["error"].endswith(".")


def test_what_makes_no_sense_gets_a_sentence(client):
    members, sample = "api/members?cluster=0&sort=index", "api/samples/"
    for path in (
        "api/members", "api/members?cluster=x&sort=index", "api/members?cluster=99&sort=index",
        "api/members?cluster=0&sort=colour", f"{members}&size=100000", f"{members}&page=-1",
        f"{sample}120", f"{sample}-1", f"{sample}99999999999999999999",
    ):  # fmt: skip
        answer = client.get(path)
        assert answer.status_code == 422 and answer.json()["error"].endswith(".")
    for body in (
        {}, [], {"edit": ["name"]}, {"edit": "name", "cluster": 0}, {"edit": "undo"},
        {"edit": "split", "cluster": 0, "parts": "2"}, {"edit": "split", "cluster": {}},
        {"edit": "move", "samples": [10**30], "cluster": 0},
    ):  # fmt: skip
        answer = client.post("api/edits", json=body)
        assert answer.status_code == 422 and answer.json()["error"].endswith("."), answer.text


def test_exports_hold_the_labels_as_they_are_now(client, model, images):
    def make(**entry):
        answer = client.post("api/edits", json=entry)
        assert answer.status_code == 200, answer.text
        return answer.json()

    make(edit="name", cluster=1, name='a "quoted", name')
    make(edit="merge", clusters=[2], into=1)
    make(edit="move", samples=[0, 1], cluster=3)
    make(edit="flag", samples=[4], flagged=True)
    make(edit="name", cluster=0, name="gone")
    make(edit="undo")
    expected = np.where(model.labels_ == 2, 1, model.labels_)
    expected[[0, 1]] = 3
    answer = client.get("labels.csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="labels.csv"'
    header, *rows = csv.reader(io.StringIO(answer.text))
    assert header == ["index", "original", "flagged", "name", "label"]
    index, original, flagged, name, label = zip(*rows, strict=True)
    assert list(map(int, index)) == list(range(120))
    assert list(map(int, original)) == model.labels_.tolist()
    assert [i for i, flag in enumerate(flagged) if flag == "true"] == [4]
    assert list(map(int, label)) == expected.tolist()
    assert set(name) == {"", 'a "quoted", name'}
    assert all((n != "") == (c == "1") for n, c in zip(name, label, strict=True))

    table = parquet.read_table(io.BytesIO(client.get("labels.parquet").content))
    assert table.column_names == header
    assert table["label"].to_pylist() == expected.tolist()
    assert [n or "" for n in table["name"].to_pylist()] == list(name)
    assert np.flatnonzero(table["flagged"].to_pylist()).tolist() == [4]


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"), ("+1", "'+1"), ("-1", "'-1"),
        ("@SUM(1)", "'@SUM(1)"), ("a;=1+1", "a;'=1+1"), ("so-so, or not", "so-so, or not"),
    ],
)  # fmt: skip
def test_no_name_is_a_formula_to_a_spreadsheet(explorer, name, written):
    explorer.edit({"edit": "name", "cluster": 0, "name": name})
    rows = list(csv.DictReader(io.StringIO(explorer.export("csv").decode())))
    assert {row["name"] for row in rows} == {"", written}
    table = parquet.read_table(io.BytesIO(explorer.export("parquet")))
    assert set(table["name"].to_pylist()) == {None, name}
