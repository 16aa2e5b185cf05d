"""Ours beside the paper's: which runs are counted, the gap, and what is written of it."""

import json
from html.parser import HTMLParser

import pytest

from kscn_paper import markdown, page
from kscn_paper.comparison import Comparison, Row, compare
from kscn_paper.tables import Table

TABLE = Table(
    "small",
    "Small | <table>",
    3,
    {
        "first": {
            "dec": {"acc": 84.3, "nmi": 80.0},
            "k-means": {"acc": 12.0, "nmi": 2.0, "approximate": True},
            "kscn-s": {"acc": 87.14, "nmi": 78.15},
        }
    },
    remarks={"first": {"kscn-s paper": "Few <epochs>.", "dec": "Never shown."}},
)


def record(
    method, acc, seed=0, preset=None, dataset="first", clusters=3, time="2026-01-01", **more
):
    return {
        "config": {
            "dataset": dataset,
            "method": method,
            "preset": preset,
            "parameters": {"n_clusters": clusters, "random_state": seed, **more},
        },
        "seed": seed,
        "scores": {"acc": acc, "nmi": acc - 0.1, "ari": acc - 0.2},
        "seconds": 90.0,
        "busy_elsewhere": 0.0,
        "time": time,
    }


@pytest.fixture
def put(tmp_path):
    """Write a run's file."""
    (tmp_path / "reproduce").mkdir()

    def write(*args, **kwargs):
        found = record(*args, **kwargs)
        config = found["config"]
        name = f"{config['dataset']}_{config['method']}_{config['preset']}_seed{found['seed']}"
        (tmp_path / "reproduce" / f"{name}.json").write_text(json.dumps(found))

    return write


def rows_of(out, table=TABLE, chosen=()):
    comparisons, faults = compare(table, out, chosen)
    assert faults == []
    return {row.title: row for row in comparisons[0].rows}


def test_without_runs_the_papers_rows_are_there(tmp_path):
    rows = rows_of(tmp_path / "nowhere")
    assert list(rows) == ["dec", "k-means", "kscn-s"]
    assert rows["dec"].ours("acc") is rows["dec"].gap("acc") is rows["dec"].grade("acc") is None


def test_every_finished_run_counts_and_presets_are_rows_of_their_own(put, tmp_path):
    put("kscn-s", 0.80, 0, "paper")
    put("kscn-s", 0.90, 0, "tuned")
    put("kscn-s", 0.94, 5, "tuned")
    put("k-subspaces", 0.5)
    put("a-method-of-the-past", 0.4)
    put("kscn-s", 0.1, 0, "tuned", dataset="second")
    put("k-means", 0.1, clusters=4)
    rows = rows_of(tmp_path)
    assert list(rows) == [
        "dec",
        "k-means",
        "kscn-s (tuned)",
        "kscn-s (paper)",
        "k-subspaces",
        "a-method-of-the-past",
    ]
    assert rows["kscn-s (tuned)"].ours("acc") == pytest.approx((92.0, 2.0))
    assert rows["kscn-s (tuned)"].gap("acc") == 4.86
    assert rows["kscn-s (paper)"].gap("acc") == -7.14
    assert rows["k-subspaces"].paper == {}
    assert rows["k-subspaces"].gap("acc") is None
    assert rows["k-means"].runs == []


def test_a_table_without_extras_shows_only_what_was_asked_for(put, tmp_path):
    put("k-subspaces", 0.5)
    put("kscn-g", 0.5, 0, "tuned")
    bare = Table("bare", "Bare", 3, TABLE.rows, extras=False)
    assert list(rows_of(tmp_path, bare)) == ["dec", "k-means", "kscn-s"]
    assert list(rows_of(tmp_path, bare, ["kscn-g"]))[3:] == ["kscn-g (tuned)"]


def test_runs_with_other_settings_are_not_averaged_with_the_newest(put, tmp_path):
    put("k-subspaces", 0.5, 0, trim=0.0)
    put("k-subspaces", 0.7, 1, time="2026-02-01")  # from before trim existed: its default is 0
    put("k-subspaces", 0.9, 2, trim=0.3)
    row = rows_of(tmp_path)["k-subspaces"]
    assert [run["seed"] for run in row.runs] == [0, 1]
    assert row.left_out == 1
    assert markdown.notes(row) == ["1 run with other settings than the newest left out."]


def test_a_time_without_pretraining_is_said_to_be_one():
    runs = [{**record("dec", 0.8, seed), "pretrained_in_cache": seed > 0} for seed in range(3)]
    assert markdown.notes(Row("dec", None, runs[:1])) == []
    assert "without pretraining in 2 of 3 runs:" in markdown.notes(Row("dec", None, runs))[0]
    assert "without pretraining: the network" in markdown.notes(Row("dec", None, runs[1:]))[0]


@pytest.mark.parametrize("busy", [None, 0.8])
def test_a_time_beside_other_work_is_not_shown(put, tmp_path, busy):
    runs = [{**record("dec", 0.8), "busy_elsewhere": busy, "pretrained_in_cache": True}]
    loud, still = Row("dec", None, runs), Row("k-means", None, [record("k-means", 0.5)])
    alone = markdown.document("Title", "x", [Comparison(TABLE, "first", [loud])])
    assert "| minutes |" not in alone  # a column of nothing
    assert "pretraining" not in alone  # nor a word on a time that is not there
    both = markdown.document("Title", "x", [Comparison(TABLE, "first", [loud, still])])
    assert "| dec | 80.0 | 70.0 | 60.0 | - | 1 |" in both
    assert "| k-means | 50.0 | 40.0 | 30.0 | 1.5 | 1 |" in both
    table = Reader(page.document("Title", "x", [Comparison(TABLE, "first", [loud])])).tables[0]
    assert table[0] == ["method", "ACC", "NMI", "ARI", "seeds"]


def test_a_sentence_that_several_rows_share_is_written_once():
    cached = {"pretrained_in_cache": True}
    rows = [
        Row("dec", None, [record("dec", 0.8) | cached], remark="Slow."),
        Row("dcn", None, [record("dcn", 0.8) | cached]),
    ]
    text = markdown.document("Title", "x", [Comparison(TABLE, "first", rows)])
    assert "| dec <sup>1, 2</sup> |" in text
    assert "| dcn <sup>2</sup> |" in text
    assert text.count("in the cache") == 1
    web = page.document("Title", "x", [Comparison(TABLE, "first", rows)])
    assert web.count('href="#note-0-2"') == 2
    assert web.count("in the cache") == 1


def test_a_damaged_file_is_told_and_the_others_count(put, tmp_path):
    put("dec", 0.8)
    (tmp_path / "reproduce" / "first_dec_seed9.json").write_text("{")
    (tmp_path / "reproduce" / ".first_dec_seed8.json.part-1").write_text("{")
    comparisons, faults = compare(TABLE, tmp_path)
    assert len(comparisons[0].rows[0].runs) == 1
    assert len(faults) == 1
    assert "first_dec_seed9.json is damaged" in str(faults[0])


@pytest.mark.parametrize(
    ("acc", "gap", "grade"),
    [
        (0.8714, 0.0, "above"),
        (0.9, 2.86, "above"),
        (0.8713, -0.01, "near"),
        (0.8414, -3.0, "near"),  # 84.14 - 87.14 is -3.0000000000000004 or so
        (0.8413, -3.01, "below"),
    ],
)
def test_three_points_below_is_the_limit(acc, gap, grade):
    row = Row("kscn-s", None, [record("kscn-s", acc)], {"acc": 87.14})
    assert row.gap("acc") == gap
    assert row.grade("acc") == grade


@pytest.fixture
def shown(put, tmp_path):
    """The table with some runs: above, below, of one run, of no run."""
    put("kscn-s", 0.90, 0, "tuned")
    put("kscn-s", 0.94, 1, "tuned")
    put("kscn-s", 0.80, 0, "paper")
    put("k-means", 0.5)
    return compare(TABLE, tmp_path)[0]


def test_markdown_has_ours_the_papers_and_the_gap(shown):
    text = markdown.document("Title", "kscn reproduce small", shown)
    lines = text.splitlines()
    assert lines[0] == "# Title"
    assert "`kscn reproduce small`" in lines[2]
    table = [line for line in lines if line.startswith("|")]
    assert table[0].startswith("| method | ACC | paper | gap | NMI | paper | gap | ARI | minutes |")
    assert {line.count("|") for line in table} == {table[0].count("|")}
    rows = {line.split(" ")[1]: line for line in table if "paper)" not in line}
    assert rows["dec"] == "| dec | - | 84.30 | - | - | 80.00 | - | - | - | - |"
    assert rows["k-means"].startswith("| k-means | 50.0 | ~12 | ▲ +38.0 | 40.0 | ~2 | ▲ +38.0 |")
    assert rows["kscn-s"] == (
        "| kscn-s (tuned) | 92.0 ± 2.0 | 87.14 | ▲ +4.9 | 82.0 ± 2.0 | 78.15 | ▲ +3.9 | "
        "72.0 ± 2.0 | 1.5 | 2 |"
    )
    assert any("| kscn-s (paper) <sup>1</sup> | 80.0 | 87.14 | ▼ -7.1 |" in line for line in table)
    assert lines[-1].strip() == "<sup>1</sup> Few &lt;epochs&gt;."
    assert "Never shown" not in text  # dec has no figure to remark on


def test_a_heading_per_table_where_there_are_several(shown):
    text = markdown.document("Title", "kscn reproduce all", [*shown, *shown])
    assert text.count(r"## Small \| &lt;table&gt;") == 2


def test_text_from_elsewhere_is_text_in_markdown():
    evil = "<script>x()</script> ![a](http://b) `c` a|b\n\n# d & e"
    table = Table("small", evil, 3, {evil: {}, "other": {}})
    odd = Comparison(table, evil, [Row(evil, evil, [], {"acc": 1.0})])
    text = markdown.document(evil, f"kscn reproduce {evil}", [odd, odd])
    shown = r"&lt;script&gt;x()&lt;/script&gt; !\[a\](http://b) \`c\` a\|b # d &amp; e"
    heading, written, *rest = text.split("\n\n")
    assert heading == f"# {shown}"
    assert written.startswith(f"Written by <code>kscn reproduce {shown}</code>; do not edit.")
    assert "<script" not in text
    assert f"## {shown}: {shown}" in rest and f"| {shown} ({shown}) | - | 1.00 |" in text


def test_a_bar_in_a_name_does_not_break_the_table():
    odd = Comparison(TABLE, "first", [Row("a|b", None, [], {"acc": 1.0})])
    assert r"| a\|b | - | 1.00 |" in markdown.document("Title", "x", [odd])


class Reader(HTMLParser):
    """Collects rows of cells of every table, checks that tags nest, keeps all attributes."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.open, self.attributes = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.attributes.append((tag, dict(attrs)))
        if tag in ("meta",):
            return
        self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data


def test_the_page_is_sound_and_says_the_same(shown):
    text = page.document("Small | <table>", "kscn reproduce small", shown)
    read = Reader(text)
    main, runs = read.tables
    assert main[0] == ["method", "ACC", "NMI", "ARI", "minutes", "seeds"]
    assert main[1] == ["ours", "paper", "gap", "ours", "paper", "gap", "ours"]
    rows = {row[0]: row for row in main[2:]}
    assert {len(row) for row in rows.values()} == {10}
    assert rows["dec"] == ["dec", "-", "84.30", "-", "-", "80.00", "-", "-", "-", "-"]
    assert rows["kscn-s tuned"][1:4] == ["92.0 ± 2.0", "87.14", "▲ +4.9 (level or above)"]
    assert rows["kscn-s paper 1"][3] == "▼ −7.1 (below)"
    assert [row[:3] for row in runs[1:]] == [
        ["k-means", "0", "50.00"],
        ["kscn-s (tuned)", "0", "90.00"],
        ["kscn-s (tuned)", "1", "94.00"],
        ["kscn-s (paper)", "0", "80.00"],
    ]
    assert "Few &lt;epochs&gt;." in text


def test_the_page_needs_nothing_else_and_can_be_read_aloud(shown):
    text = page.document("Title", "x", shown)
    read = Reader(text)
    used = [(tag, name) for tag, given in read.attributes for name in given]
    assert not {"src", "srcset"} & {name for _, name in used}
    targets = [given["href"] for tag, given in read.attributes if "href" in given]
    assert targets == ["#note-0-1"]
    assert ("li", {"id": "note-0-1"}) in read.attributes
    assert "url(" not in text
    assert "@import" not in text
    assert "//" not in text.replace("<!doctype", "")
    scopes = [given.get("scope") for tag, given in read.attributes if tag == "th"]
    assert None not in scopes
    assert text.count("<caption") == text.count("<table>") == 2
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text
