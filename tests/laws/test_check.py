# SPDX-License-Identifier: Apache-2.0
"""`kvnmt.check`: a sound attention passes, and each law catches what breaks it."""

from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

import kvnmt
from kvnmt.attention import additive, distortion, dot, kv_memory
from kvnmt.encoder import recurrent
from kvnmt.errors import UserError
from kvnmt.laws.attention import LAWS
from kvnmt.laws.check import LIBRARIES, Verdict, Verdicts, check
from kvnmt.laws.trial import make_trial
from kvnmt.typing import Sizes
from tests.laws import cases
from tests.laws.wrong import (
    NAMES,
    SOUND,
    WRONG,
    carrying,
    changed,
    leaks_mass,
    telling,
    tells_no_head,
    tells_of_padding,
    tells_squares,
    tells_too_large_a_share,
)

# Other programs, or one operation at a time: tried where they are to be broken.
COSTLY = {"compiled", "gradient", "scanned", "hypotheses", "wider", "rows"}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_mechanism_is_caught(name, monkeypatch):
    attention, broken = WRONG[name]
    cases.try_few(monkeypatch, LAWS, broken, COSTLY)
    verdicts = kvnmt.check(attention)
    assert not verdicts.hold
    assert set(verdicts.failed) == broken
    for verdict in verdicts.laws:
        assert bool(verdict.reason) == (verdict.law in broken)


def test_every_law_catches_something():
    assert set().union(*(broken for _, broken in WRONG.values())) == set(NAMES)


@pytest.mark.parametrize(
    "change, reason",
    [
        (tells_squares, "at word 1 the alignment is not"),
        (tells_of_padding, "at word 1 padding has weights"),
        (tells_too_large_a_share, "at word 1 shares of own writes"),
        (tells_no_head, "what is told of word 1 has shapes"),
    ],
)
def test_what_is_told_goes_with_what_is_shown(change, reason):
    (law,) = [law for law in LAWS if law.name == "weighed"]
    first, *_ = law.violations(make_trial(telling(change)))
    assert first.startswith(reason)


def test_verdicts_can_be_asserted():
    one = Verdict("law", "it holds", "holds")
    assert Verdicts([one]) and not Verdicts([one, one._replace(outcome="FAILS")])


def test_sound_mechanisms_hold():
    for mechanism in (additive, dot, kv_memory):
        verdicts = check(mechanism)
        assert verdicts.hold, verdicts
        assert [verdict.law for verdict in verdicts.laws] == ["runs", *NAMES]
        assert {verdict.outcome for verdict in verdicts.laws} == {"holds"}
    assert check(dot, dot.Options(score="general")).hold


def test_a_memory_may_learn_how_it_begins_and_write_words():
    """Parameters of a State that has begun, and of a word that is not the first."""
    memory = kv_memory.build(kv_memory.Options())

    def init(key, sizes, weights):
        words, start, key = jax.random.split(key, 3)
        return {
            "memory": memory.init(key, sizes, weights),
            "start": weights.matrix(start, (1, sizes.annotation)),
            "words": weights.matrix(words, (sizes.embedding, sizes.state)),
        }

    def write(params, source, state, moment):
        told = moment.decoder_state * (moment.embedded @ params["words"])
        moment = replace(moment, decoder_state=told)
        return memory.write(params["memory"], source, state, moment)

    begun = memory._replace(
        init=init,
        prepare=lambda params, *text: memory.prepare(params["memory"], *text),
        initial_state=lambda params, source: kv_memory.State(
            keys=source.values + params["start"]
        ),
        read=lambda params, *now: memory.read(params["memory"], *now),
        write=write,
        explain=None,
    )
    (law,) = [law for law in LAWS if law.name == "reach"]
    assert not [*law.violations(make_trial(begun))]


def test_as_many_earlier_states_as_source_words_are_no_slots():
    def last_five(params, source):
        return jnp.zeros((source.mask.shape[0], 5, 7))

    def push(params, source, state, moment):
        return jnp.concatenate([state[:, 1:], moment.decoder_state[:, None]], axis=1)

    (law,) = [law for law in LAWS if law.name == "kept"]
    assert not [*law.violations(make_trial(carrying(last_five, push)))]


def test_a_look_is_an_attended():
    verdicts = check(SOUND._replace(read=lambda *_: (1, 2)))
    assert verdicts.failed == ["runs"]
    assert "`read` gives a tuple, not an Attended" in repr(verdicts)
    assert "give sizes" not in repr(verdicts)


def test_options_are_within_their_bounds():
    verdicts = check(kv_memory, kv_memory.Options(write_bias=float("nan")))
    assert verdicts.failed == ["runs"]
    assert "write_bias is nan but must be a finite number" in repr(verdicts)


def test_a_law_may_be_excused():
    verdicts = check(distortion, excused=["order", "sum"])
    assert verdicts.hold
    outcomes = {verdict.law: verdict.outcome for verdict in verdicts.laws}
    assert outcomes["order"] == outcomes["sum"] == "excused"
    assert outcomes["rows"] == "holds"
    assert set(check(distortion).failed) == {"order", "sum"}
    with pytest.raises(UserError, match="no law 'ordre'; did you mean 'order'"):
        check(distortion, excused=["ordre"])


@pytest.mark.parametrize("what", ["additive", additive.Options(), recurrent, None])
def test_what_has_no_laws_is_refused(what):
    with pytest.raises(UserError, match="is of no kind that has laws; give a module"):
        check(what)


def test_options_are_those_of_the_mechanism():
    with pytest.raises(UserError, match="the options are kvnmt.attention.dot.Options;"):
        check(additive, dot.Options())
    with pytest.raises(UserError, match="no law 'order!'; did you mean 'order'"):
        check(additive, excused="order!")


def raises(*arguments):
    raise ZeroDivisionError("no such <luck>")


@pytest.mark.parametrize(
    "mechanism",
    [
        SOUND._replace(read=raises),
        SOUND._replace(init=raises),
        SimpleNamespace(Options=additive.Options, build=raises),
    ],
    ids=["read", "init", "build"],
)
def test_errors_are_in_the_report(mechanism):
    verdicts = check(mechanism)
    assert verdicts.failed == ["runs"]
    assert "ZeroDivisionError: no such <luck> (line " in repr(verdicts)
    assert "in raises: raise ZeroDivisionError" in repr(verdicts)
    assert "give sizes" not in repr(verdicts)
    assert "no such &lt;luck&gt;" in verdicts._repr_html_()
    assert {verdict.outcome for verdict in verdicts.laws[1:]} == {"untried"}


def test_an_error_of_widths_tells_where_and_what_to_give():
    def read(params, source, state, moment):
        return SOUND.read(params, source, state, moment.replace(query=moment.embedded))

    (reason, *_) = (law.reason for law in check(SOUND._replace(read=read)).laws)
    assert "in read: return SOUND.read(" in reason
    assert reason.endswith("; it runs where all widths are alike: give sizes that fit")


def test_an_error_of_types_says_nothing_of_widths():
    def read(params, source, state):
        return SOUND.read(params, source, state, None)

    reason = check(SOUND._replace(read=read)).laws[0].reason
    assert "TypeError" in reason and "sizes" not in reason


def test_an_error_among_our_files_tells_its_line(tmp_path, monkeypatch):
    file = tmp_path / "among_ours.py"
    file.write_text(
        "from kvnmt.attention.additive import Options as Additive, build as additive\n"
        "class Options(Additive): pass\n"
        "def init(*_):\n    raise KeyError('no such key')\n"
        "def build(options):\n"
        "    return additive(Additive())._replace(init=init)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("kvnmt.laws.check.LIBRARIES", (*LIBRARIES, str(tmp_path)))
    mechanism = import_module(file.stem)
    for each in (mechanism, mechanism.build(None)):
        assert "(line 4, in init: raise KeyError" in repr(check(each))


def test_an_error_under_one_law_leaves_the_others():
    def read(params, source, state, moment):
        if source.mask.shape[1] > 5:
            raise IndexError("five words at most")
        return SOUND.read(params, source, state, moment)

    verdicts = check(SOUND._replace(read=read))
    assert verdicts.failed == ["wider"]
    assert "IndexError: five words at most" in repr(verdicts)


def test_the_report_reads_well():
    lines = repr(check(changed(leaks_mass))).splitlines()
    assert len(lines) == len(NAMES) + 1
    (line,) = [line for line in lines if line.startswith("FAILS")]
    assert line.endswith("to 0: at word 1 the alignments sum to 0.9, 0.9, 0")


def test_other_widths_can_be_tried():
    sizes = Sizes(embedding=2, encoder=2, annotation=4, state=4, alignment=3)
    assert check(additive, sizes=sizes).hold
