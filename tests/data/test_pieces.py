# SPDX-License-Identifier: Apache-2.0
"""Pieces that were made elsewhere get our specials, and are else left as they are."""

import io

import pytest
import sentencepiece

from kvnmt.data.vocabularies import Vocabularies, check_merges, load, save
from kvnmt.data.vocabulary import EOS, UNK, Subwords, Words
from kvnmt.errors import UserError
from tests.helpers import toy_lines


def pieces_by(text, **choices) -> bytes:
    """A model as SentencePiece's own program makes it."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text),
        model_writer=model,
        minloglevel=2,
        **{"vocab_size": 60} | choices,
    )
    return model.getvalue()


OURS = {"eos_id": 0, "unk_id": 1, "bos_id": -1}


@pytest.mark.parametrize(
    "ids",
    [
        {},  # of SentencePiece's own program
        {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3},
        {"eos_id": -1, "bos_id": -1},
        {"unk_id": 5, "control_symbols": ["<other>"], "eos_id": 4, "pad_id": 3},
    ],
)
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_pieces_made_elsewhere_get_our_specials(tmp_path, text, kind, ids):
    """Their own ids would end sentences in their middle; lines are cut as before."""
    data = pieces_by(text, model_type=kind, **ids)
    (tmp_path / "source.model").write_bytes(data)
    words, theirs = load(tmp_path, "source"), Subwords(data)
    assert words.pieces([EOS, UNK]) == ["</s>", "<unk>"]
    for line in (*text[:20], "a \u4e00 b", ""):
        ours = words.encode(line)
        assert words.pieces(ours) == theirs.pieces(theirs.encode(line))
        assert EOS not in ours
        assert words.decode(ours) == theirs._processor.decode(theirs.encode(line))
    assert UNK in words.encode("\u4e00")
    save(words, tmp_path, "target")
    assert load(tmp_path, "target") == words


def test_pieces_with_our_specials_are_left_as_they_are(tmp_path, text):
    data = pieces_by(text, model_type="unigram", **OURS)
    (tmp_path / "source.model").write_bytes(data)
    words = load(tmp_path, "source")
    assert words.data == data and words.decode(words.encode(text[0])) == text[0]


def test_only_merges_are_left_out_by_chance(tmp_path, text, subwords):
    """A unigram model has none; what a user defined is a piece by itself."""
    bpe = {"model_type": "bpe"} | OURS
    plain = Subwords(pieces_by(text, **bpe))
    check_merges(Vocabularies(plain, subwords))
    check_merges(Vocabularies(Words(("a",)), plain))
    defined = Subwords(pieces_by(text, **bpe, user_defined_symbols=["<2en>"]))
    check_merges(Vocabularies(plain, defined))
    other = Subwords(pieces_by(text, model_type="unigram", **OURS))
    with pytest.raises(UserError, match="the target vocabulary is no plain byte-pair"):
        check_merges(Vocabularies(plain, other))
    # What has no piece is bytes, which no merge leads to. All of hexadecimal is text.
    hexadecimal = [*text, "<0x" * 9, *("0123456789 ABCDEF>",) * 9]
    size = {"vocab_size": 400, "hard_vocab_limit": False}
    spelt = pieces_by(hexadecimal, **bpe | size, byte_fallback=True)
    with pytest.raises(UserError, match="the source vocabulary is no plain byte-pair"):
        check_merges(Vocabularies(Subwords(spelt), plain))


def test_no_translation_holds_a_line_feed():
    """Which is a piece of a model that falls back to bytes."""
    size = {"vocab_size": 300, "hard_vocab_limit": False}
    options = OURS | {"model_type": "bpe"} | size
    words = Subwords(pieces_by(toy_lines(1, 50), **options, byte_fallback=True))
    (feed,) = (i for i in range(len(words)) if words.pieces([i]) == ["<0x0A>"])
    assert words.decode([feed, *words.encode("a b"), feed]).split() == ["a", "b"]
    assert "\n" not in words.decode([feed, feed])
