# SPDX-License-Identifier: Apache-2.0
"""What a word of a line is, whatever a vocabulary makes of it.

A word is what stands between ASCII spaces. No other blank ends one: where text was
tokenised by somebody else, an ideographic or a no-break space is part of a word, and
links between words would shift if it split one.
"""

from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate, takewhile

from kvnmt.data.codes import MARK, Codes
from kvnmt.data.vocabularies import Vocabulary
from kvnmt.data.vocabulary import SPACE, UNK, Characters, Subwords

# What sentences and their parts end with; the last ones in Arabic, Urdu and Hindi.
ENDS = tuple(".!?;:…。！？；：؟؛۔।")


def split_words(line: str) -> list[str]:
    """Returns the words of a line."""
    return [word for word in line.split(" ") if word]


def word_numbers(vocabulary: Vocabulary, line: str, ids: Sequence[int]) -> list[int]:
    """For every token of a line the number of its word, from 0.

    A subword model may write a word as several tokens, or as none; they still belong
    to the word of the line. Where a space is a character, it belongs to the word
    before it.

    Args:
        vocabulary: Of the side.
        line: As a user wrote it, or as a translation was decoded.
        ids: Its tokens, without EOS. Those of a translation need not be the ones that
            the vocabulary makes of the line.
    """
    words, usual = split_words(line), vocabulary.encode(line)
    if isinstance(vocabulary, Codes):
        if numbers := _joined_numbers(vocabulary, words, ids):
            return numbers
    if list(ids) != usual:
        if _text(vocabulary, ids) == _text(vocabulary, usual):  # cut in another way
            numbers = _marked_numbers(vocabulary, words, ids)
            if numbers is not None:
                return numbers
        return _decoded_numbers(vocabulary, len(words), ids)
    pieces = [vocabulary.encode(word) for word in words]
    if [i for word in pieces for i in word] == list(ids):
        return [number for number, word in enumerate(pieces) for _ in word]
    if isinstance(vocabulary, Characters):
        whole = line.strip(" ")
        begins = (a == " " != b for a, b in zip(" " + whole, whole))
        return [number - 1 for number in accumulate(begins)]
    return _decoded_numbers(vocabulary, len(words), ids)


def _text(vocabulary: Vocabulary, ids: Sequence[int]) -> str:
    return "".join(vocabulary.pieces(ids))


def _joined_numbers(
    vocabulary: Codes, words: Sequence[str], ids: Sequence[int]
) -> list[int] | None:
    """Word numbers from the marks of unfinished pieces; None: they do not agree.

    An unknown piece has no mark, but a word that has one is always cut the same way.
    """
    numbers, pieces = list[int](), vocabulary.pieces(ids)
    for number, word in enumerate(words):
        usual, first = vocabulary.encode(word), len(numbers)
        if UNK in usual:
            if list(ids[first : first + len(usual)]) != usual:
                return None
            numbers += [number] * len(usual)
            continue
        for piece in pieces[first:]:
            numbers.append(number)
            if not piece.endswith(MARK):
                break
        else:
            return None
    return numbers if len(numbers) == len(ids) else None


def _marked_numbers(
    vocabulary: Vocabulary, words: Sequence[str], ids: Sequence[int]
) -> list[int] | None:
    """Word numbers from the marks of spaces in subwords; None: they do not agree.

    A word of the line has no mark if it has no visible character, and several marks if
    one of its characters becomes a space.
    """

    def marks(ids: Sequence[int]) -> list[bool]:
        return [piece.startswith(SPACE) for piece in vocabulary.pieces(ids)]

    owners = [
        number
        for number, word in enumerate(words)
        for _ in range(sum(marks(vocabulary.encode(word))))
    ]
    begun = list(accumulate(marks(ids)))
    if not begun or (begun[0], begun[-1]) != (1, len(owners)):
        return None
    return [owners[count - 1] for count in begun]


def _decoded_numbers(
    vocabulary: Vocabulary, words: int, ids: Sequence[int]
) -> list[int]:
    """Word numbers from how many words there are up to every token."""
    numbers = []
    start = before = 0  # where decoding begins, and how many words are before
    for n, piece in enumerate(vocabulary.pieces(ids)):
        if piece.startswith(SPACE) and not isinstance(vocabulary, Codes):
            before += len(split_words(vocabulary.decode(ids[start:n])))
            start = n
        begun = before + len(split_words(vocabulary.decode(ids[start : n + 1])))
        if piece == SPACE and not isinstance(vocabulary, Characters):
            begun += 1  # it begins the word that comes next
        numbers.append(max(min(begun, words) - 1, 0))
    return numbers


def cut(vocabulary: Vocabulary, line: str, limit: int) -> list[str]:
    """Cuts a line into parts of at most ``limit`` tokens, nearly equal in length.

    Cuts are at spaces, behind the end of a sentence if one is in the second half of a
    part; only a word that is too long by itself is cut inside. Nothing is lost but
    spaces at the cuts. Symbols that the line begins with, such as the tag
    of a language, stand before every part, unless they fill more than half of one.

    Args:
        vocabulary: Says how many tokens a text has.
        line: What is cut.
        limit: At least 1.
    """
    if len(vocabulary.encode(line)) <= limit:
        return [line]
    words = split_words(line)
    tags = _tags(vocabulary, words, limit)
    room = limit - len(vocabulary.encode(tags))
    while tags and 2 * room >= limit:
        rest = " ".join(words).removeprefix(tags)
        parts = [tags + part for part in _cut(vocabulary, rest, room)]
        if all(len(vocabulary.encode(part)) <= limit for part in parts):
            return parts
        room -= 1  # a word behind a symbol may be more pieces than by itself
    return _cut(vocabulary, line, limit)


def word_places(line: str, parts: Sequence[str]) -> list[list[int]]:
    """For every word of every part that `cut` made, the number of the line's word.

    Of a word that was cut inside, all pieces have its number. Symbols that stand before
    every part are those that the line begins with.
    """
    words, places = split_words(line), list[list[int]]()
    # Nothing is lost but spaces, so what there is more of is the symbols.
    more = sum(map(_visible, parts)) - _visible(line)
    symbols = more // max(len(parts) - 1, 1)  # their characters
    at = done = 0  # the line's word that comes next, and how much of it was there
    for number, part in enumerate(parts):
        places.append([])
        left = symbols if number else 0
        for word in split_words(part):
            if len(word) <= left:  # symbols alone
                left -= len(word)
                places[-1].append(len(places[-1]))
                continue
            done, left = done + len(word) - left, 0
            places[-1].append(at)
            if done == len(words[at]):
                at, done = at + 1, 0
    return places


def _visible(text: str) -> int:
    """How many characters are no spaces."""
    return len(text) - text.count(" ")


def _cut(vocabulary: Vocabulary, line: str, limit: int) -> list[str]:
    """As `cut`, but no symbols are put before the parts."""
    if len(vocabulary.encode(line)) <= limit:
        return [line]
    words = split_words(line)
    if len(words) == 1:
        middle = _middle(line)
        if not middle:
            return [line]  # one character that is several tokens
        halves = line[:middle], line[middle:]
        return [part for half in halves for part in _cut(vocabulary, half, limit)]
    sizes = [max(len(vocabulary.encode(word)), 1) for word in words]
    left = sum(sizes)
    mean, groups, total = _mean(left, limit, 2), [[]], 0
    for word, size in zip(words, sizes):
        ends = 2 * total >= mean and groups[-1][-1].endswith(ENDS)
        if groups[-1] and (total + size > limit or total >= mean or ends):
            groups.append([])
            left -= total
            mean, total = _mean(left, limit), 0
        groups[-1].append(word)
        total += size
    if len(groups) == 1:  # only with the spaces is it too long, of which some count
        middle = len(words) // 2
        groups = [words[:middle], words[middle:]]
    lines = (" ".join(group) for group in groups)
    return [part for line in lines for part in _cut(vocabulary, line, limit)]


def _mean(tokens: int, limit: int, least: int = 1) -> float:
    """How long parts are that are as few as can be, and equal."""
    return tokens / max(-(-tokens // limit), least)


def _middle(word: str) -> int:
    """Where a word is cut that is too long: in the middle, or behind an end next to it.

    Chinese and Japanese lines are one word.
    """
    middle, quarter = len(word) // 2, len(word) // 4
    inner = range(quarter + 1, len(word) - quarter)
    places = (place for place in inner if word.endswith(ENDS, 0, place))
    return min(places, key=lambda place: abs(place - middle), default=middle)


def _tags(vocabulary: Vocabulary, words: Sequence[str], limit: int) -> str:
    """The symbols that the words begin with, as they are written.

    Empty if there is nothing else. A symbol may be part of a word. If a word begins
    with more symbols than the limit, reading stops once they are too many.
    """
    if not isinstance(vocabulary, Subwords) or not vocabulary.symbols:
        return ""

    def symbols(text: str) -> int:
        """How many are in it; 0 if anything else is."""
        pieces = [p for p in vocabulary.pieces(vocabulary.encode(text)) if p != SPACE]
        return len(pieces) if all(p in vocabulary.symbols for p in pieces) else 0

    whole = [*takewhile(symbols, words)]
    before = "".join(f"{word} " for word in whole)
    if len(whole) == len(words):
        return ""
    word, longest = words[len(whole)], max(map(len, vocabulary.symbols))
    begun = ""
    while True:
        ends = range(len(begun) + 1, min(len(word), len(begun) + longest + 1))
        counts = [symbols(word[:n]) for n in ends]
        if max(counts, default=0) <= (have := symbols(begun)) or have > limit:
            return before + begun
        begun = word[: ends[counts.index(max(counts))]]


def beginning(vocabulary: Vocabulary, line: str, limit: int) -> str:
    """The first words of a line that have at most ``limit`` tokens together.

    If the first word is too long by itself, as many of its characters.

    Args:
        vocabulary: Says how many tokens a text has.
        line: What is cut; nothing is left of one that has no words.
        limit: At least 1.
    """

    def fits(text: str) -> bool:
        return len(vocabulary.encode(text)) <= limit

    if not (words := split_words(line)):
        return ""
    counts = range(1, len(words) + 1)
    if count := bisect(counts, False, key=lambda n: not fits(" ".join(words[:n]))):
        return " ".join(words[:count])
    first = words[0]
    counts = range(1, len(first) + 1)
    return first[: max(bisect(counts, False, key=lambda n: not fits(first[:n])), 1)]


def first_filled(vocabulary: Vocabulary, parts: Sequence[str]) -> int:
    """The place of the first part of a line that has tokens; 0 if none has.

    A part may have none, such as one that is but a wide space.
    """
    filled = (n for n, part in enumerate(parts) if vocabulary.encode(part))
    return next(filled, 0)
