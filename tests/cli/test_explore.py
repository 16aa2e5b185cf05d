"""`kscn explore`: a real process whose edits survive a kill, or one sentence."""

import json
import shutil
import signal
import urllib.request
from http.cookiejar import CookieJar

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")


@pytest.fixture
def run(finished, tmp_path):
    """A copy of the finished run, to write beside."""
    return shutil.copytree(finished, tmp_path / "run")


class Page:
    """A browser without a screen: it keeps the cookie that the first page sets."""

    def __init__(self, process, run):
        line = process.first_line()
        assert line.startswith(f"exploring {run} at http://127.0.0.1:")
        self.first = line.split(" at ")[1].split()[0]
        self.root = self.first.split("/?")[0]
        cookies = urllib.request.HTTPCookieProcessor(CookieJar())
        self._opener = urllib.request.build_opener(cookies)
        assert b"kscn explore" in self._opener.open(self.first, timeout=60).read()

    def get(self, path):
        return self._opener.open(self.root + path, timeout=60).read()

    def edit(self, **entry):
        head = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.root}/api/edits", json.dumps(entry).encode(), head)
        return json.loads(self._opener.open(request, timeout=60).read())


def content(run):
    return {p: p.read_bytes() for p in run.rglob("*") if p.is_file() and "explore" not in p.parts}


def test_edits_survive_a_kill_and_the_run_stays_as_it_was(start, run, kscn, one_sentence):
    before = content(run)
    process = start("explore", run)
    page = Page(process, run)
    page.edit(edit="name", cluster=0, name="first")
    page.edit(edit="merge", clusters=[2], into=1)
    labels = page.get("/labels.csv")
    assert "another process" in one_sentence(kscn("explore", run))
    process.kill()
    process.wait()
    journal = run / "explore" / "edits.jsonl"
    journal.write_bytes(journal.read_bytes() + b'{"edit":"mer')  # killed while it wrote

    process = start("explore", run, "--no-browser")
    page = Page(process, run)
    assert page.get("/labels.csv") == labels
    assert [one["name"] for one in json.loads(page.get("/api/state"))["clusters"]] == ["first", ""]
    page.edit(edit="undo")
    assert page.get("/labels.csv") != labels
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    assert content(run) == before
    assert len(journal.read_bytes().splitlines()) == 4  # what it is about, and three entries


def test_what_cannot_be_explored_gets_one_sentence(one_sentence, kscn, run):
    (run / "explore").mkdir()
    (run / "explore" / "edits.jsonl").write_text("hello\n")
    assert "line 1" in one_sentence(kscn("explore", run))
    config = run / "config.toml"
    config.write_text(config.read_text().replace("x.npy", "gone.npy"))
    assert "is no longer at" in one_sentence(kscn("explore", run))
