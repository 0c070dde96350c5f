# SPDX-License-Identifier: Apache-2.0
"""Tables of likely target tokens: counted, written, read."""

import numpy as np
import pytest

from kvnmt.data.encoding import tokenised
from kvnmt.data.text import Block
from kvnmt.data.vocabularies import Vocabularies, digests
from kvnmt.data.vocabulary import UNK, Characters, Words
from kvnmt.errors import UserError
from kvnmt.inference import shortlist as shortlists
from kvnmt.inference import shortlist_file
from kvnmt.inference.shortlist import NO_TOKEN, Lexicon, Shortlist, count_links
from kvnmt.inference.shortlist_file import read_shortlist, write_shortlist
from kvnmt.inference.token_links import counted_links

VOCABULARIES = Vocabularies(Words(("der", "Hund", "NULL")), Words(("dog", "the")))
DER, HUND, DOG, THE = 2, 3, 2, 3


def test_links_are_counted(monkeypatch):
    blocks = [
        np.array([[DER, THE], [HUND, DOG], [NO_TOKEN, THE], [NO_TOKEN, DOG]]),
        np.array([[DER, THE], [DER, DOG], [NO_TOKEN, THE], [DER, UNK]]),
    ]
    lexicon = count_links(blocks, (5, 4)).lexicon
    assert list(zip(*map(np.ndarray.tolist, lexicon))) == [
        (NO_TOKEN, THE, 2 / 3),
        (NO_TOKEN, DOG, 1 / 3),
        (DER, THE, 2 / 4),
        (DER, DOG, 1 / 4),
        (HUND, DOG, 1.0),
    ]
    fewer = count_links(blocks, (5, 4), best=1, common=1).lexicon
    assert fewer.target.tolist() == [THE, THE, DOG]
    none = count_links(blocks, (5, 4), best=1, common=0).lexicon
    assert none.target.tolist() == [THE, DOG]
    monkeypatch.setattr(shortlists, "SORTED", 1)  # each block by itself
    one_by_one = count_links(blocks, (5, 4)).lexicon
    for some, same in zip(lexicon, one_by_one, strict=True):
        np.testing.assert_array_equal(some, same)


def test_links_between_words_are_spread_over_their_tokens():
    """Here characters, of which a space belongs to the word before it."""
    letters = Characters("abcd ")
    a, b, c, d, space = letters.encode("ab cd")[:2] + letters.encode("cd b")[:3]
    sides = [b"ab c", b"d"], [b"d a", b""]
    block = Block(*sides, 1, ("source", "target", "links"), [b"0-1 1-0", b""])
    pairs = tokenised(Vocabularies(letters, letters), block, "keep")
    links = counted_links(pairs.source, pairs.target, pairs.links)
    assert sorted(map(tuple, links.tolist())) == sorted(
        [(a, a), (b, a), (space, a), (c, d), (c, space)]
        + [(NO_TOKEN, token) for token in (d, space, a)]
    )


@pytest.mark.parametrize("lines_at_a_time", [1, 2, 100])
def test_what_is_written_is_read(tmp_path, monkeypatch, lines_at_a_time):
    path = tmp_path / "table"
    entries = [(NO_TOKEN, THE, 0.25), (DER, THE, 0.5), (DER, DOG, 0.125)]
    lexicon = Lexicon(*map(np.array, zip(*entries)))
    write_shortlist(Shortlist(lexicon, 5, 4), VOCABULARIES, path)
    monkeypatch.setattr(shortlist_file, "LINES", lines_at_a_time)
    again = read_shortlist(path, VOCABULARIES)
    assert list(zip(*map(np.ndarray.tolist, again.lexicon))) == entries
    assert (again.source_size, again.target_size) == (5, 4)
    lines = path.read_text().splitlines()
    assert lines[1:] == ["the NULL 0.25", "the der 0.5", "dog der 0.125"]
    assert all(len(line.split()) == 3 for line in lines)  # so others can read it


def test_a_space_stays_a_space(tmp_path):
    """Where the sign that shows it is a character, too."""
    words = Characters("ab \u2581")
    entries = [(NO_TOKEN, 4, 0.5), (3, 4, 0.5), (4, 4, 0.5)]
    lexicon = Lexicon(*map(np.array, zip(*entries)))
    both = Vocabularies(words, words)
    write_shortlist(Shortlist(lexicon, 6, 6), both, tmp_path / "table")
    again = read_shortlist(tmp_path / "table", both)
    assert list(zip(*map(np.ndarray.tolist, again.lexicon))) == entries


def test_a_table_of_another_program(tmp_path, monkeypatch):
    """Tokens that are not known, and NULL, are left out; frequent words are common."""
    monkeypatch.setattr(shortlist_file, "LINES", 3)
    path = tmp_path / "lex.s2t"
    path.write_text("dog\tHund\t0.75\ncat der 0.5\nthe NULL 0.5\nthe der 0.25\n")
    lexicon = read_shortlist(path, VOCABULARIES).lexicon
    assert list(zip(*map(np.ndarray.tolist, lexicon))) == [
        (NO_TOKEN, DOG, 0),
        (NO_TOKEN, THE, 0),
        (DER, THE, 0.25),
        (HUND, DOG, 0.75),
    ]


def test_a_table_of_another_program_has_the_likeliest_alone(tmp_path, monkeypatch):
    """Its own program cuts as it reads."""
    monkeypatch.setattr(shortlist_file, "BEST", 1)
    monkeypatch.setattr(shortlist_file, "LINES", 1)
    path = tmp_path / "lex.s2t"
    path.write_text("dog der 0.125\nthe der 0.25\ndog Hund 0.75\n")
    lexicon = read_shortlist(path, VOCABULARIES).lexicon
    chosen = [pair for pair in zip(*lexicon[:2]) if pair[0] != NO_TOKEN]
    assert chosen == [(DER, THE), (HUND, DOG)]


HEAD = "# kvnmt:{source}:{target} 0\n"


@pytest.mark.parametrize(
    "text, part",
    [
        ("dog Hund 0.5\ndog Hund\n", "line 2: a shortlist has a target token"),
        ("dog Hund much\n", "line 1: a shortlist has"),
        ("dog Hund 1.5\n", "line 1: a shortlist has"),
        ("dog Hund nan\n", "line 1: a shortlist has"),
        ("\n", "line 1: a shortlist has"),
        ("", "links no token of the vocabularies"),
        ("Hund dog 0.5\n", "links no token of the vocabularies"),
        (HEAD, "links no token of the vocabularies"),
        (HEAD + "dog Hund 0.5\ncat Hund 0.5\n", "line 3: the vocabularies have no"),
        ("# kvnmt:0123:{target} 0\n", "another source vocabulary (0123)"),
        ("# kvnmt:{source}:4567 0\n", "another target vocabulary (4567)"),
        ("# kvnmt:{source}:{target} 2\nthe der 0.5\n", "has 1 of its 2 entries"),
    ],
)
def test_bad_tables_are_refused(tmp_path, text, part):
    path = tmp_path / "table"
    path.write_text(text.format(**digests(VOCABULARIES)))
    with pytest.raises(UserError) as error:
        read_shortlist(path, VOCABULARIES)
    assert str(path) in str(error.value) and part in str(error.value)
    assert str(error.value).endswith(".")
