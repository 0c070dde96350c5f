# SPDX-License-Identifier: Apache-2.0
"""What a notebook draws and explains."""

import numpy as np
import pytest

import kvnmt
from tests.helpers import untrained


def test_explanations_agree_with_scores(run):
    explanation = run.explain("a b c")
    assert [explanation.translation] == run.translate(["a b c"])
    (scored,) = run.score(["a b c"], [explanation.translation])
    assert explanation.token_log_probs == scored.token_log_probs
    assert explanation.log_prob == scored.log_prob
    (rounds,) = run.align(["a b c"], [explanation.translation])
    np.testing.assert_array_equal(explanation.alignments, rounds)
    shape = len(explanation.target_tokens), len(explanation.source_tokens)
    assert [matrix.shape for matrix in rounds] == [shape]
    assert explanation.memory is None
    with pytest.raises(kvnmt.UserError, match="no signed weights"):
        explanation.draw_weights("weights.png")
    forced = run.explain("a b c", "H")
    assert forced.translation == "H"
    assert forced.log_prob < explanation.log_prob


def test_memories_are_explained(tmp_path_factory):
    base = tmp_path_factory.getbasetemp()
    run = kvnmt.load(untrained(base, "kvmematt-r2"))
    explanation = run.explain("a b", "A B C")
    assert explanation.memory is not None
    for matrices in explanation.memory:
        assert [matrix.shape for matrix in matrices] == [(4, 3)] * 2
    both = kvnmt.load(
        untrained(base, "kvmematt-r2"), untrained(base, "rnnsearch-star")
    ).explain("a b", "A B C")
    assert both.memory is None  # two models have no memory in common
    for draw in (both.draw_memory, both.draw_weights):
        with pytest.raises(kvnmt.UserError, match="explain one of its members"):
            draw("memory.png")


def test_what_a_decoder_looks_back_at_is_drawn(run, tmp_path_factory, tmp_path):
    base = tmp_path_factory.getbasetemp()
    looks = kvnmt.load(untrained(base, "self-attentive-residual"))
    explanation = looks.explain("a b", "A B C")
    explanation.draw_self_attention(tmp_path / "looks.png")
    assert (tmp_path / "looks.png").read_bytes().startswith(b"\x89PNG")
    assert explanation._repr_html_().count("data:image/png;base64,iVBOR") == 2
    with pytest.raises(kvnmt.UserError, match="does not look back"):
        run.explain("a b", "A B").draw_self_attention("looks.png")


def test_signed_weights_are_explained_and_drawn(tmp_path_factory, tmp_path):
    run = kvnmt.load(untrained(tmp_path_factory.getbasetemp(), "gated-delta-memory"))
    explanation = run.explain("a b", "A B C")
    assert explanation.weights is not None
    assert [matrix.shape for matrix in explanation.weights.signed] == [(4, 4, 3)]
    explanation.draw_weights(tmp_path / "weights.png")
    assert (tmp_path / "weights.png").read_bytes().startswith(b"\x89PNG")
    assert explanation._repr_html_().count("data:image/png;base64,iVBOR") == 2


def test_explanations_are_shown(run, tmp_path):
    run.explain("a b").draw(tmp_path / "alignment.png")
    assert (tmp_path / "alignment.png").read_bytes().startswith(b"\x89PNG")
    shown = run.explain("a <b> &", "A B")._repr_html_()
    assert "a &lt;b&gt; &amp;" in shown and "<b>A B</b>" in shown
    assert "data:image/png;base64,iVBOR" in shown


def test_without_attention_nothing_is_drawn(tmp_path_factory, tmp_path):
    run = kvnmt.load(untrained(tmp_path_factory.getbasetemp(), "rnnencdec"))
    explanation = run.explain("a b", "A B")
    assert explanation.alignments == []
    assert "<img" not in explanation._repr_html_()
    with pytest.raises(kvnmt.UserError, match="no attention"):
        explanation.draw(tmp_path / "alignment.png")
