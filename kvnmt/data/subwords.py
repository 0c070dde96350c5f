# SPDX-License-Identifier: Apache-2.0
"""Byte-pair encodings: learnt from text, and rid of what a side does not need.

If pieces are learnt from both sides together (Sennrich et al. 2016), a side does not
use all of them, nor all steps on the way to a longer piece. A vocabulary without these
has fewer rows to compute, and spreads no probability over words that never occur.
"""

import io
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import sentencepiece

from kvnmt.data.bpe_dropout import PROTOCOL, SPACE
from kvnmt.data.vocabulary import EOS, SPECIAL, UNK, Subwords
from kvnmt.errors import OptionError, UserError

UNSEEN = "Cc", "Cf"  # controls and formats: a tab, a zero-width blank
RESERVED = "\u2585"  # SentencePiece leaves lines out that hold it
TOO_LONG = re.compile("[^ ]{3000}")  # characters of a word that are learnt from
STRAY = 0.001  # a script with a smaller share of the letters of a text is no part of it


def build_subwords(
    lines: Iterable[str],
    size: int,
    normalization: str = "nmt_nfkc",
    symbols: Sequence[str] = (),
    coverage: float = 1.0,
) -> Subwords:
    """Learns a byte-pair encoding from the lines: ``size`` pieces, or all there are.

    The model stores how it normalises characters and does this with all that it reads;
    so what it writes is normalised, too.

    Args:
        lines: Text.
        size: Most pieces, two specials and the symbols included.
        normalization: How characters are made alike.
        symbols: Each is a piece, wherever it stands and whether or not it occurs; it is
            neither made alike nor cut, and nothing else has a part of it.
        coverage: Share of the characters of the text that have a piece.

    Raises:
        UserError: There is no text, or it has more characters than that, or what is to
            be a symbol cannot be one.
    """
    symbols = list(dict.fromkeys(symbols))
    _check_symbols(symbols, size)
    model, visible = io.BytesIO(), False

    def sentences() -> Iterator[str]:
        nonlocal visible
        for line in lines:
            # SentencePiece ends the process at a word of more than 65 535 characters,
            # and normalising may make eighteen of one.
            line = TOO_LONG.sub(r"\g<0> ", line.replace(RESERVED, " "))
            visible = visible or any(map(_is_seen, line))
            yield line

    try:
        sentencepiece.SentencePieceTrainer.train(  # pyright: ignore
            sentence_iterator=sentences(),
            model_writer=model,
            model_type="bpe",
            vocab_size=size,
            hard_vocab_limit=False,  # little text has fewer pieces
            character_coverage=coverage,
            normalization_rule_name=normalization,
            max_sentence_length=1 << 30,  # bytes; longer lines would be left out
            eos_id=EOS,
            unk_id=UNK,
            bos_id=-1,
            pad_id=-1,
            user_defined_symbols=symbols,
            num_threads=1,
            minloglevel=2,
        )
    except (RuntimeError, OSError):
        if not visible:
            raise UserError("the text has no visible character to learn.") from None
        raise OptionError(
            f"{{0}} {size} cannot be learnt from this text; every character needs a "
            "piece, so choose more, or leave out rare ones with {1} 0.9995.",
            *("data.subwords", "data.character_coverage"),
        ) from None
    return Subwords(model.getvalue())


def _check_symbols(symbols: Sequence[str], size: int) -> None:
    for symbol in symbols:
        if not symbol or symbol in SPECIAL or any(map(_parts_words, symbol)):
            raise OptionError(
                f"{{0}} has {symbol!r}, which cannot be a symbol: give one or more "
                f"characters without a space, but not {' or '.join(SPECIAL)}.",
                "data.symbols",
            )
    if symbols and len(SPECIAL) + len(symbols) >= size:
        raise OptionError(
            f"{{0}} are {len(symbols)}, which leaves none of the {size} of {{1}} for "
            "text; choose more of these.",
            *("data.symbols", "data.subwords"),
        )


def _parts_words(character: str) -> bool:
    byte = unicodedata.category(character) == "Cs"  # half a character, or a byte
    return byte or character in (SPACE, RESERVED) or not _is_seen(character)


def _is_seen(character: str) -> bool:
    """Whether something of a character is left once text is normalised."""
    return not character.isspace() and unicodedata.category(character) not in UNSEEN


def _script(character: str) -> str:
    """The script of a letter, by its name: LATIN, CYRILLIC, CJK; else empty."""
    if not unicodedata.category(character).startswith("L"):
        return ""
    return unicodedata.name(character, "").split(" ")[0]


def _scripts(characters: Mapping[str, int]) -> set[str]:
    """The scripts that have more than a few letters, by how often each occurs."""
    counts = Counter[str]()
    for character, count in characters.items():
        counts[_script(character)] += count
    least = STRAY * (counts.total() - counts[""])
    return {""} | {script for script, count in counts.items() if count >= least}


def with_our_ids(data: bytes) -> bytes:
    """A model of SentencePiece whose first pieces are EOS and UNK, as ours are.

    Text is cut into the same pieces. ``<s>`` and ``<pad>``, which no text becomes, are
    left out, and ``</s>`` is added where a model was trained without it.

    Raises:
        ValueError: The model has no unknown piece.
    """
    model = PROTOCOL.ModelProto.FromString(data)
    spec, kinds = model.trainer_spec, PROTOCOL.ModelProto.SentencePiece
    end = PROTOCOL.ModelProto.SentencePiece(piece=spec.eos_piece, type=kinds.CONTROL)
    unknown = [piece for piece in model.pieces if piece.type == kinds.UNKNOWN]
    if len(unknown) != 1:
        raise ValueError("it has no piece for what is unknown")
    names = {spec.eos_piece, spec.bos_piece, spec.pad_piece}
    others = [
        piece
        for piece in model.pieces
        if piece.type != kinds.UNKNOWN
        and not (piece.type == kinds.CONTROL and piece.piece in names)
    ]
    del model.pieces[:]
    model.pieces.extend([end, *unknown, *others])
    spec.eos_id, spec.unk_id, spec.bos_id, spec.pad_id = EOS, UNK, -1, -1
    return model.SerializeToString()


def trim(vocabulary: Subwords, lines: Iterable[str]) -> Subwords:
    """Leaves out pieces that do not occur in the lines, single characters apart.

    The lines become the same pieces as before. What would become a piece that is left
    out becomes shorter ones: SentencePiece cuts a piece that is marked unused, and
    these come after all others and get no id. A piece is removed altogether if it has a
    letter that the lines lack, of a script that they hardly use, such as Chinese in
    English: thousands of them would be half of a vocabulary. They become unknown.
    """
    model = PROTOCOL.ModelProto.FromString(vocabulary.data)
    seen = Counter[int]()
    for line in lines:
        seen.update(vocabulary.encode(line))
    kinds = PROTOCOL.ModelProto.SentencePiece
    letters = Counter[str]()
    for number, count in seen.items():
        if model.pieces[number].type == kinds.NORMAL:
            letters.update(dict.fromkeys(model.pieces[number].piece, count))
    scripts = _scripts(letters)
    kept, unused = [], []
    for number, piece in enumerate(model.pieces):
        others = {*piece.piece} - letters.keys()
        if piece.type == kinds.NORMAL and not {*map(_script, others)} <= scripts:
            continue
        needed = piece.type != kinds.NORMAL or len(piece.piece) == 1
        (kept if needed or number in seen else unused).append(piece)
    for piece in unused:
        piece.type = kinds.UNUSED
    del model.pieces[:]
    model.pieces.extend(kept + unused)
    return Subwords(model.SerializeToString())
