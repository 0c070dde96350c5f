# SPDX-License-Identifier: Apache-2.0
"""BLEU and chrF: known scores, signatures, and mistakes told plainly."""

import sys

import pytest
import sacrebleu

from kvnmt.errors import UserError
from kvnmt.metrics import bleu
from kvnmt.metrics.bleu import (
    Settings,
    corpus_bleu,
    corpus_chrf,
    corpus_ter,
    sentence_statistics,
)

PLAIN = Settings("none")
THAI = [
    "\u0e41\u0e21\u0e27\u0e19\u0e31\u0e48\u0e07\u0e1a\u0e19\u0e40\u0e2a\u0e37\u0e48\u0e2d"
] * 2
SENTENCES = ["the cat sat on the mat .", "there is a second sentence here ."]


@pytest.mark.parametrize("metric", [corpus_bleu, corpus_chrf])
def test_identical_texts_score_100(metric):
    result = metric(SENTENCES, SENTENCES)
    assert result.score == pytest.approx(100)
    assert "nrefs:1" in result.signature


@pytest.mark.parametrize("tokenize", ["13a", "none", "intl", "zh"])
def test_text_without_spaces_or_ideographs_is_told(tokenize):
    """Thai, of which sacreBLEU's tokenizer of Chinese parts nothing."""
    _, instead = bleu.mistaken(THAI, tokenize) or ("", "")
    assert instead == "char or flores200"
    assert not bleu.mistaken(THAI, "char")


def test_text_that_seems_tokenised_is_told():
    """Where 13a, which is for other text, cuts it."""
    what, instead = bleu.mistaken(SENTENCES, "13a") or ("", "")
    assert "most references end in ' .'" in what and instead.startswith("none")
    assert not bleu.mistaken(SENTENCES, "none")
    assert not bleu.mistaken(["the cat sat.", "here .", "there."], "13a")
    assert not bleu.mistaken([], "13a")


@pytest.mark.parametrize("tokenize", ["13a", "none", "intl"])
def test_text_without_spaces_is_told(tokenize):
    """Where BLEU would compare whole lines."""
    lines = ["\u732b\u304c\u30de\u30c3\u30c8\u306e\u4e0a\u306b\u5ea7\u308b\u3002" * 2]
    what, instead = bleu.mistaken(lines, tokenize) or ("", "")
    assert f"by {tokenize} compares whole lines" in what and "ja-mecab" in instead
    assert not bleu.mistaken(lines, "zh")
    assert not bleu.mistaken([" ".join(lines[0])], "none")  # segmented
    code = "self.assertEqual(response.status_code, http.client.NOT_FOUND)"
    german = "Donaudampfschifffahrtsgesellschaft"
    assert not bleu.mistaken([code], tokenize) and not bleu.mistaken([german], tokenize)


def test_bleu_by_hand():
    # Matches 5/5, 4/4, 3/3, 2/2; five tokens for six: brevity penalty exp(1 - 6/5).
    result = corpus_bleu(["a b c d e"], ["a b c d e f"], tokenize="none")
    assert result.score == pytest.approx(81.8730753)


def test_one_tokenizer_is_made_for_all_that_is_counted(monkeypatch):
    made, make = [], bleu.bleu_metric
    monkeypatch.setattr(bleu, "bleu_metric", lambda s: made.append(s) or make(s))
    bleu._shared.cache_clear()
    for line in SENTENCES:
        sentence_statistics([line], [line], PLAIN)
    assert made == [PLAIN]


def test_of_several_references_each_n_gram_may_be_of_another():
    # 5/5 words, 3/4 pairs, 1/3 triples, 0/2: of 7 and 5 words the nearer length is 5.
    lines, more = ["a b c x y"], [["x y p q r"]]
    (counts,) = sentence_statistics(lines, ["a b c d e f g"], PLAIN, more)
    assert counts.tolist() == [5, 3, 1, 0, 5, 4, 3, 2, 5, 5]
    both = corpus_bleu(SENTENCES, SENTENCES[::-1], more=[SENTENCES])
    assert both.score == pytest.approx(100) and "nrefs:2" in both.signature
    assert corpus_chrf(SENTENCES, SENTENCES[::-1], more=[SENTENCES]).score > 99.9
    with pytest.raises(UserError, match="2 hypotheses but 1 references"):
        corpus_bleu(SENTENCES, SENTENCES, more=[SENTENCES[:1]])


TYPED = ["The cat on the mat sat .", "", "here is a Second sentence"]
THREE = [*SENTENCES, "a third"]


@pytest.mark.parametrize("more", [[], [["the cat", "", "a third one"]]])
@pytest.mark.parametrize("lowercase", [False, True])
def test_edits_are_those_of_sacrebleu(more, lowercase):
    case = {"lowercase": lowercase, "more": more}
    references = [THREE, *[[line or None for line in other] for other in more]]
    ter = corpus_ter(TYPED, THREE, **case)
    theirs = sacrebleu.corpus_ter(TYPED, references, case_sensitive=not lowercase)
    assert ter.score == theirs.score > 0
    chrf = corpus_chrf(TYPED, THREE, word_order=2, **case)
    metric = sacrebleu.CHRF(word_order=2, lowercase=lowercase)
    assert chrf.score == metric.corpus_score(TYPED, references).score > 0
    assert chrf.score != corpus_chrf(TYPED, THREE, **case).score
    assert "|nw:2|" in chrf.signature
    for signature in (ter.signature, chrf.signature):
        assert f"case:{'lc' if lowercase else 'mixed'}" in signature
        assert f"nrefs:{'var' if more else 1}" in signature


def test_edits_of_many_sentences_are_counted_some_at_a_time():
    """The last of them have fewer references than the first."""
    texts, counts = (TYPED * 15, THREE * 15), list[int]()
    more = [["the cat", "", "a third one"] * 2 + [""] * 39]
    result = corpus_ter(*texts, more=more, advance=counts.append)
    assert sum(counts) == 45 and len(counts) > 2
    theirs = sacrebleu.TER(case_sensitive=True)
    whole = theirs.corpus_score(texts[0], [texts[1], [x or None for x in more[0]]])
    assert result.score == pytest.approx(whole.score, rel=1e-12)
    assert result.signature == str(theirs.get_signature()) and "var" in result.signature


def test_edits_by_hand():
    # One shift, one word for another, of six; a further reference has neither.
    moved, right = ["on the mat a cat sits"], ["a cat sat on the mat"]
    assert corpus_ter(moved, right).score == pytest.approx(100 * 2 / 6)
    assert corpus_ter(moved, right, more=[moved]).score == 0
    assert corpus_ter([""], right).score == 100
    assert corpus_ter([""], [""]).score == 0 and corpus_ter(["a"], [""]).score == 100


def test_ideographs_without_spaces_are_edited_one_by_one():
    result = corpus_ter(["\u732b" * 9 + "\u72ac"], ["\u732b" * 10])
    assert result.score == pytest.approx(10) and "asian:yes" in result.signature
    for lines in (SENTENCES, THAI):
        assert "asian:no" in corpus_ter(lines, lines).signature


def test_signature_names_the_choices():
    assert "tok:13a" in corpus_bleu(SENTENCES, SENTENCES).signature
    choices = corpus_bleu(SENTENCES, SENTENCES, tokenize="none", lowercase=True)
    assert "tok:none" in choices.signature
    assert "case:lc" in choices.signature


@pytest.mark.parametrize("metric", [corpus_bleu, corpus_chrf])
def test_lowercase_ignores_case(metric):
    shouted = [sentence.upper() for sentence in SENTENCES]
    assert metric(shouted, SENTENCES).score < 50
    assert metric(shouted, SENTENCES, lowercase=True).score == pytest.approx(100)


def test_tokenized_text_is_scored_in_silence(capfd, caplog):
    corpus_bleu(SENTENCES * 60, SENTENCES * 60)
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


@pytest.mark.parametrize("metric", [corpus_bleu, corpus_chrf, corpus_ter])
def test_counts_must_agree(metric):
    with pytest.raises(UserError, match="2 hypotheses but 1 references.*\\.$"):
        metric(SENTENCES, SENTENCES[:1])
    with pytest.raises(UserError, match="no sentence.*\\.$"):
        metric([], [])


def test_unknown_tokenizer_suggests_the_nearest():
    with pytest.raises(UserError, match="did you mean '13a'"):
        corpus_bleu(SENTENCES, SENTENCES, tokenize="v13a")


def test_tokenizer_that_is_not_installed(monkeypatch):
    module = "sacrebleu.tokenizers.tokenizer_ja_mecab"
    monkeypatch.setitem(sys.modules, "MeCab", None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(UserError, match="'ja-mecab' cannot be used here") as caught:
        corpus_bleu(SENTENCES, SENTENCES, tokenize="ja-mecab")
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".") and not sentence.endswith("..")
