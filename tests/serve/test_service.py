# SPDX-License-Identifier: Apache-2.0
"""What stands behind the addresses, without a server."""

import gc
import weakref
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from kvnmt.data import buckets
from kvnmt.inference.score import compiled_score
from kvnmt.runs.directory import Run, load_run
from kvnmt.serve.batcher import NotReadyError
from kvnmt.serve.guard import Guard
from kvnmt.serve.limits import Limits, Refusal
from kvnmt.serve.questions import Asker
from kvnmt.serve.server import make_serving
from kvnmt.serve.service import Service, most_rows
from kvnmt.serve.works import Line, Pair, Task, matrices
from tests.helpers import untrained
from tests.serve.serving import LIMITS, SEARCH

# On the four devices of tests, 8 rows of 16 positions or 16 rows of 8.
NARROW = replace(SEARCH, batch_tokens=128)


@pytest.mark.parametrize(
    "kind, item, long",
    [
        ("translate", Line, "a b c d " * 3),
        ("score", lambda line: Pair(line, "A"), "a " * 600),
    ],
)
def test_a_batch_in_several_blocks_needs_the_program_of_each(
    runs, monkeypatch, kind, item, long
):
    monkeypatch.setattr(buckets, "PROGRAM", -1)  # no shape is left out
    service = Service({"plain": runs["plain"]})
    service.aside = True  # as with one device
    task = Task(kind, "plain", NARROW)

    def ask(longs: int, may: bool) -> int:
        lines = [long] * longs + ["a b"] * (16 - longs)
        return len(service(task, [item(line) for line in lines], may))

    assert ask(16, True) == 16  # two blocks of one shape
    with pytest.raises(NotReadyError):
        ask(1, False)
    assert ask(1, True) == 16
    assert ask(0, False) == ask(1, False) == 16  # its second block, and both


@pytest.mark.parametrize(
    ("search", "characters", "rows"),
    [
        ({}, 5, 16),
        ({"batch_size": 10}, 5, 10),
        ({"beam": 15}, 5, 16),
        ({"beam": 20}, 5, 4),
        ({"beam": 160, "nbest": 160}, 5, 1),
        ({"sample": True, "nbest": 160}, 5, 1),
        ({"beam": 30, "sample": True, "nbest": 5}, 5, 16),  # no beam is searched
        ({}, 599, 16),
        ({}, 600, 4),
        ({}, 1200, 4),
        ({}, 9999, 1),
    ],
)
def test_what_takes_long_shares_with_few(search, characters, rows):
    """Nobody else is answered while a batch is under way."""
    task = Task("translate", "plain", replace(SEARCH, **search))
    assert most_rows(task, Line("a" * characters)) == rows
    task = task._replace(kind="score")  # which searches nothing
    if not {"beam", "nbest"} & {*search}:
        assert most_rows(task, Pair("a", "a" * characters)) == rows
    assert most_rows(task, Pair("a", "a" * 5)) == min(search.get("batch_size", 16), 16)


@pytest.mark.parametrize("size", [2, 3, 10])
def test_the_programs_of_usual_batches_are_there_whatever_their_size(runs, size):
    """Of any number of short lines that a batch may hold."""
    search = replace(SEARCH, batch_size=size)
    service = Service({"plain": runs["plain"]})
    for task, lines in service.usual(search):
        service(task, lines, True)
    service.aside = True  # as with one device
    task = Task("translate", "plain", search)
    for count in range(1, size + 1):
        assert len(service(task, [Line("a b c")] * count, False)) == count


def test_a_program_of_scores_that_was_freed_is_no_longer_known(runs, few_objects):
    service = Service(runs)
    service.aside = True
    for name in [*runs][:1] * 2:
        task = Task("score", name, SEARCH)
        with pytest.raises(NotReadyError):
            service(task, [Pair("a", "A")], False)
        assert service(task, [Pair("a", "A")], True)
        assert service(task, [Pair("a", "A")], False)
        compiled_score.cache_clear()
        gc.collect()
    assert len(service._known) <= 2  # of one program, on all devices and on one


def test_the_page_shares_no_batch_while_words_are_drawn(runs):
    for sample in (False, True):
        asker = Asker(runs, replace(SEARCH, sample=sample), LIMITS)
        first, second = (asker.exploration({"line": "a"})[1] for _ in range(2))
        for one, other in zip(first, second, strict=True):
            assert (one.task == other.task) is not sample


def test_no_more_is_shown_of_a_line_than_of_aligned_translations(runs):
    asker = Asker(runs, SEARCH, Limits(tokens=400))
    long = "a " * 400
    for asked in ({"line": long}, {"line": "a", "prefixes": ["", long]}):
        with pytest.raises(
            Refusal, match=r"as \d+ alignments but may be as large as 32"
        ):
            asker.exploration(asked)
    asker.exploration({"line": "a " * 199, "prefixes": ["A " * 199] * 2})


@pytest.mark.parametrize("name", ["kvmematt-r2", "delta-memory", "self-attentive-rnn"])
def test_what_is_shown_of_a_line_is_counted_before(tmp_path_factory, name):
    run = load_run(untrained(tmp_path_factory.getbasetemp(), name))
    check_count(run, 1 if name == "self-attentive-rnn" else 0)


def test_of_an_ensemble_only_means_are_counted(both):
    check_count(both, 0)


def check_count(run: Run, looks: int) -> None:
    task = Task("explore", "ours", SEARCH)
    (shown,) = Service({"ours": run})(task, [Line("a b c")])
    assert len(shown["self_attention"] or ()) == looks
    count = len(shown["rounds"]) + looks
    count += sum(map(len, shown["memory"] or ()))
    count += sum(len(weights["signed"]) for weights in shown["weights"] or ())
    assert matrices(run) == count > 0


def test_arrays_stand_once_on_every_device(runs, few_objects):
    """Those that were read are freed."""
    run = runs["plain"]
    given = {"plain": run._replace(params=jax.tree.map(jnp.copy, run.params))}
    read = [weakref.ref(leaf) for leaf in jax.tree.leaves(given["plain"].params)]
    serving = make_serving(given, SEARCH, LIMITS, Guard())
    del given
    gc.collect()
    assert read and not any(leaf() is not None for leaf in read)
    serving.batcher.close(10)
