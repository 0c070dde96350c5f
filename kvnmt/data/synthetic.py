# SPDX-License-Identifier: Apache-2.0
"""A bilingual corpus with gold word alignments, drawn from a small grammar.

The source is a subject-verb-object language of English words, the target an invented
verb-final one. Every constituent knows its yield in both, so that a sentence, its
translation and its alignment come out of one derivation (stems in capitals):

    the young dogs that chased a hat will not pick the lamp up in two gardens
    HAT ro CHASE-tam ke DOG-n YOUNG-ra wa TWO GARDEN IN LAMP ro na PICK_UP-vum po

- Reordering: verbs end their clause, relative and subordinate clauses precede what
  they modify, adjectives follow their noun, prepositions become postpositions.
- One to many: ``not`` is ``na ... po``, and some words are compounds.
- Many to one: ``picked ... up``, ``will ... wash``, ``post office``.
- No counterpart: articles; in the target ``wa`` (subject) and ``ro`` (object).
- Agreement: verbs with the number of their subject, adjectives with the class of their
  noun; a noun loses its plural ending after a quantifier.
- Words follow a Zipf-Mandelbrot law; the tail is names, spelt alike on both sides.

The translation is a function of the source: of two readings only one is ever drawn.
Place, time and second predicates belong to the main clause, relatives to lone nouns.
"""

import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kvnmt.errors import UserError

# Most frequent first; "_" joins the words of one entry, "=n" gives it n target words.
# Nouns and adjectives start with consonants ("a", not "an"); all inflect regularly.
TABLES = {
    "being": """dog king girl farmer cat queen boy grandmother=2 sailor bird teacher
        goat police_officer poet shepherd=2 painter guinea_pig dragon blacksmith=3""",
    "thing": """book lamp hat letter bicycle=2 table chair fire_truck violin
        dictionary=2 bottle sewing_machine wheel telescope=3""",
    "place": "garden house village river post_office forest lighthouse=2 tower museum",
    "adjective": "young red small big happy blue tired hungry poor clever quiet lazy",
    "intransitive": "laugh wait jump dance=2 cough stumble",
    "transitive": """help call pick_up watch chase pick turn_on push call_off greet=2
        turn_off wash visit knock_down""",
    "ditransitive": "show hand hand_over promise=3",
    "manner": "slowly gladly often right_away quickly=2",
    "time": "today every_day again at_night this_week=2",
    "preposition": "in near behind in_front_of",
    "quantifier": "two many three",
    "conjunction": "because when after",
}
NAMES = 80
SHIFT, NAME_SHIFT = 8, 2  # Mandelbrot's constant: the smaller, the steeper

# Source words and their counterparts; the subject and object particles have none.
AND, AND_ALSO, NOT = (("and",), ("te",)), (("and",), ("ja",)), (("not",), ("na", "po"))
OF, THAT, TO = (("of",), ("no",)), (("that",), ("ke",)), (("to",), ("ho",))
SUBJECT, OBJECT = ("wa", None), ("ro", None)
PAST, FUTURE, PLURAL_VERB, PLURAL_NOUN = "ta", "vu", "m", "n"
CLASSES = {"being": "ra", "thing": "li", "place": "su"}

LENGTHS = range(4, 21)  # of a sentence, in words
TRIES_PER_PAIR = 20


@dataclass(frozen=True)
class Pair:
    """A sentence, its translation and all links (source index, target index) from 0."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: frozenset[tuple[int, int]]


@dataclass(frozen=True)
class Corpus:
    """Three parts that share no source and no target sentence."""

    train: tuple[Pair, ...]
    valid: tuple[Pair, ...]
    test: tuple[Pair, ...]


def make_corpus(
    seed: int = 1, train: int = 8000, valid: int = 400, test: int = 400
) -> Corpus:
    """Draws distinct pairs, the same on every machine for the same arguments.

    Test and validation are drawn first: they do not change with the size of train.

    Raises:
        UserError: The language has not so many distinct sentences.
    """
    rng = random.Random(seed)
    held, wanted = test + valid, train + valid + test
    seen: set[_Words] = set()
    pairs: list[Pair] = []
    for _ in range(TRIES_PER_PAIR * wanted):
        if len(pairs) == wanted:
            break
        pair = sample(rng)
        if seen.isdisjoint((pair.source, pair.target)):
            seen |= {pair.source, pair.target}
            pairs.append(pair)
    if len(pairs) < wanted:
        raise UserError(
            f"the synthetic language gave only {len(pairs)} of {wanted} distinct "
            "sentences; ask for fewer."
        )
    return Corpus(tuple(pairs[held:]), tuple(pairs[test:held]), tuple(pairs[:test]))


def write_corpus(corpus: Corpus, folder: Path) -> None:
    """Writes ``{train,valid,test}.{src,trg,align}``, the links as Pharaoh ``i-j``."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, pairs in vars(corpus).items():
        columns = {
            "src": [pair.source for pair in pairs],
            "trg": [pair.target for pair in pairs],
            "align": [[f"{i}-{j}" for i, j in sorted(pair.links)] for pair in pairs],
        }
        for suffix, lines in columns.items():
            text = "".join(" ".join(line) + "\n" for line in lines)
            (folder / f"{part}.{suffix}").write_bytes(text.encode())


def sample(rng: random.Random) -> Pair:
    """Draws one sentence of admissible length with its translation."""
    while True:
        source, target, *_ = _sentence(rng)
        if len(source) in LENGTHS and len(target) in LENGTHS:
            break
    links = frozenset(
        (i, j)
        for i, (_, unit) in enumerate(source)
        for j, (_, other) in enumerate(target)
        if unit is not None and unit is other
    )
    return Pair(tuple(word for word, _ in source), tuple(w for w, _ in target), links)


_Words = tuple[str, ...]
_Entry = tuple[_Words, _Words]  # source, target
_Token = tuple[str, object | None]  # tokens of one unit translate each other
_Tokens = tuple[_Token, ...]


class _Phrase(NamedTuple):
    source: _Tokens = ()
    target: _Tokens = ()
    plural: bool = False
    heavy: bool = False  # a verb particle does not move behind a heavy object


def _lexicon() -> dict[str, list[_Entry]]:
    syllables = [onset + vowel for onset in "bdghkmnprstz" for vowel in "aeiou"]
    words = [first + second for first in syllables for second in syllables]
    # Neighbours should not look alike; 1009 and the 3600 words are coprime.
    coined = (words[1009 * number % len(words)] for number in range(1, len(words)))
    lexicon: dict[str, list[_Entry]] = {category: [] for category in TABLES}
    for category, table in TABLES.items():
        for item in table.split():
            source, _, size = item.partition("=")
            target = tuple(itertools.islice(coined, int(size or 1)))
            lexicon[category].append((tuple(source.split("_")), target))
    names = [(next(coined).capitalize() + "l",) for _ in range(NAMES)]
    return lexicon | {"name": [(name, name) for name in names]}


LEXICON = _lexicon()


def _draw(rng: random.Random, category: str) -> _Entry:
    """Draws a word; those from a rank on share about shift / (rank + shift)."""
    entries, shift = LEXICON[category], NAME_SHIFT if category == "name" else SHIFT
    size = len(entries)
    rank = shift / (1 - rng.random() * size / (size + shift)) - shift
    return entries[min(int(rank), size - 1)]


def _linked(source: Iterable[str], target: Iterable[str]) -> _Phrase:
    unit = object()
    return _Phrase(tuple((w, unit) for w in source), tuple((w, unit) for w in target))


def _inflected(words: _Words, ending: str) -> _Words:
    return (*words[:-1], words[-1] + ending)


def _joined(head: _Phrase, join: _Entry, other: _Phrase, swap: bool) -> _Phrase:
    link = _linked(*join)
    left, right = (other, head) if swap else (head, other)
    source = head.source + link.source + other.source
    target = left.target + link.target + right.target
    return _Phrase(source, target, head.plural, heavy=swap)


def _noun(rng: random.Random, kind: str) -> _Phrase:
    """Article or quantifier, adjectives, noun; the adjectives change sides."""
    source, target = _draw(rng, kind)
    plural = rng.random() < 0.4
    front = _Phrase((("the" if plural or rng.random() < 0.7 else "a", None),))
    if plural:
        source = _inflected(source, "s")
        if rng.random() < 0.3:
            front = _linked(*_draw(rng, "quantifier"))
        else:
            target = _inflected(target, PLURAL_NOUN)
    noun = _linked(source, target)
    count = rng.choices((0, 1, 2), (73, 22, 5))[0]
    for words, stem in dict.fromkeys(_draw(rng, "adjective") for _ in range(count)):
        adjective = _linked(words, _inflected(stem, CLASSES[kind]))
        noun = _Phrase(adjective.source + noun.source, noun.target + adjective.target)
    return _Phrase(front.source + noun.source, front.target + noun.target, plural)


def _noun_phrase(rng: random.Random, *kinds: str) -> _Phrase:
    """A name, a noun, two nouns, a noun with its owner or a noun with a clause."""
    kind = rng.choice(kinds)
    shapes = ("name", "noun", "two", "owned", "relative")
    shape = rng.choices(shapes, (20, 50, 10, 10, 10))[0]
    if shape == "name" and kind == "being":
        return _linked(*_draw(rng, "name"))
    head = _noun(rng, kind)
    if shape == "two":
        return _joined(head, AND, _noun(rng, kind), swap=False)._replace(plural=True)
    if shape == "owned":
        return _joined(head, OF, _noun(rng, "being"), swap=True)
    if shape == "relative":
        return _joined(head, THAT, _relative(rng, head.plural, kind), swap=True)
    return head


def _relative(rng: random.Random, plural: bool, kind: str) -> _Phrase:
    """A clause without its subject, or without its object."""
    if kind == "being" and rng.random() < 0.5:
        return _predicate(rng, plural)
    subject = _noun(rng, "being")
    verb, particle = _verb(rng, "transitive", subject.plural)
    target = subject.target + (SUBJECT,) + verb.target
    return _Phrase(subject.source + verb.source + particle, target)


def _verb(rng: random.Random, kind: str, plural: bool) -> tuple[_Phrase, _Tokens]:
    """Auxiliary, negation, adverb and verb; its source particle is handed out apart."""
    (lemma, *particle), stem = _draw(rng, kind)
    past = rng.random() < 0.65
    negation = _linked(*NOT) if rng.random() < 0.12 else _Phrase()
    manner = _linked(*_draw(rng, "manner")) if rng.random() < 0.1 else _Phrase()
    forms = ["did" if past else "will", lemma]
    if past and not negation.source:
        forms = [lemma + ("d" if lemma.endswith("e") else "ed")]
    ending = (PAST if past else FUTURE) + (PLURAL_VERB if plural else "")
    verb = _linked(forms + particle, _inflected(stem, ending))
    at = len(forms) - 1
    main = verb.source[at : at + 1]
    source = verb.source[:at] + negation.source + manner.source + main
    target = negation.target[:1] + verb.target + negation.target[1:]
    return _Phrase(source, manner.target + target), verb.source[at + 1 :]


def _predicate(rng: random.Random, plural: bool) -> _Phrase:
    kinds = ("intransitive", "transitive", "ditransitive")
    kind = rng.choices(kinds, (25, 60, 15))[0]
    verb, particle = _verb(rng, kind, plural)
    if kind == "intransitive":
        return verb
    thing = _noun_phrase(rng, "being", "thing")
    source = particle + thing.source if thing.heavy else thing.source + particle
    target = thing.target + (OBJECT,) + verb.target
    goal = _Phrase()
    if kind == "ditransitive":
        goal = _joined(goal, TO, _noun(rng, "being"), swap=True)
    return _Phrase(verb.source + source + goal.source, goal.target + target)


def _clause(rng: random.Random) -> _Phrase:
    """Subject and predicate, perhaps two, with phrases of place and time."""
    subject = _noun_phrase(rng, "being")
    predicate = _predicate(rng, subject.plural)
    if rng.random() < 0.1:
        second = _predicate(rng, subject.plural)
        predicate = _joined(predicate, AND_ALSO, second, swap=False)
    place = time = _Phrase()
    if rng.random() < 0.2:
        preposition = _draw(rng, "preposition")
        place = _joined(place, preposition, _noun(rng, "place"), swap=True)
    if rng.random() < 0.2:
        time = _linked(*_draw(rng, "time"))
    target = subject.target + (SUBJECT,) + place.target + predicate.target
    source = subject.source + predicate.source + place.source
    source = time.source + source if rng.random() < 0.5 else source + time.source
    return _Phrase(source, time.target + target)


def _sentence(rng: random.Random) -> _Phrase:
    clause = _clause(rng)
    if rng.random() < 0.9:
        return clause
    return _joined(clause, _draw(rng, "conjunction"), _clause(rng), swap=True)
