# SPDX-License-Identifier: Apache-2.0
"""A trained model, and what is done with it in one line."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvnmt import attention, decoder, target_context
from kvnmt.catalogue import Catalogue
from kvnmt.data.vocabularies import Vocabularies, digests
from kvnmt.errors import UserError
from kvnmt.inference.config import SearchConfig, check_asked, check_one, check_search
from kvnmt.inference.describe import describe
from kvnmt.inference.ensemble import count_members
from kvnmt.inference.explain import Explanation, explain
from kvnmt.inference.ids import begun_ids, check_counts, text_lines
from kvnmt.inference.score import Scored, score_lines
from kvnmt.inference.shortlist import Shortlist
from kvnmt.inference.translate import Request, translate_lines
from kvnmt.model.assembly import Model, Params, count_parameters
from kvnmt.runs.config import Experiment


class Run(NamedTuple):
    """A trained model, as read back from its run directory.

    Searches are those of the run's config unless another is passed.
    """

    experiment: Experiment
    vocabularies: Vocabularies
    model: Model
    params: Params

    def translate(
        self,
        lines: Iterable[str],
        search: SearchConfig | None = None,
        shortlist: Shortlist | None = None,
        prefixes: Iterable[str] | None = None,
    ) -> list[str]:
        """Translates lines, each as a whole; one line out per line in, in order.

        Args:
            lines: What is translated.
            search: How to search; an option as in its default or in the run's config
                was not asked for.
            shortlist: What lines may be translated with; `read_shortlist` of
                `kvnmt.inference.shortlist_file` reads it. None: everything.
            prefixes: What translations begin with, a text for each line, perhaps empty;
                a word that the vocabulary lacks becomes ``<unk>``.

        Raises:
            UserError: Lines or prefixes are no list of lines, or differ in number, the
                run is a language model, coverage is to be scored where nothing is
                aligned, an option of the search is not what it may be or does nothing
                here, or the shortlist is of other words.

        Example::

            >>> run = kvnmt.load("runs/mine")
            >>> len(run.translate(["a b c", "d e"]))
            2
        """
        lines = text_lines(lines)
        _refuse_language_model(self)
        config = _checked(search, self)
        check_one(config, self.experiment.search, "given (describe gives all)")
        request = _request(self, lines, shortlist, prefixes)
        return translate_lines(self, lines, config, **request)

    def describe(
        self,
        lines: Iterable[str],
        search: SearchConfig | None = None,
        shortlist: Shortlist | None = None,
        prefixes: Iterable[str] | None = None,
    ) -> list[dict[str, Any]]:
        """Translates lines, as `translate`, and tells all that is known of the result.

        A record for each line, as ``kvnmt translate --json`` writes it: scores, tokens,
        alignment and, where the search has ``nbest``, the other translations.

        Example::

            >>> run = kvnmt.load("runs/mine")
            >>> search = kvnmt.SearchConfig(beam=4, nbest=3)
            >>> [record] = run.describe(["a b c"], search)
            >>> len(record["nbest"])
            3
        """
        lines = text_lines(lines)
        _refuse_language_model(self)
        request = _request(self, lines, shortlist, prefixes)
        return describe(self, lines, _checked(search, self), **request)

    def score(
        self, source: Iterable[str], target: Iterable[str], aligned: bool = True
    ) -> list[Scored]:
        """Tells how probable translations are, token by token, and how they are read.

        Args:
            source: What is translated.
            target: Its translations, one for each.
            aligned: Whether to tell how they are read; of many pairs that is large.

        Raises:
            UserError: A side is no list of lines, or the sides differ in number.

        Example::

            >>> run = kvnmt.load("runs/mine")
            >>> right, wrong = run.score(["a b", "a b"], ["A B", "B B"])
            >>> right.log_prob > wrong.log_prob
            True
        """
        source, target = text_lines(source), text_lines(target)
        return score_lines(self, source, target, aligned=aligned)

    def align(
        self, source: Iterable[str], target: Iterable[str]
    ) -> list[list[NDArray[np.floating]]]:
        """Aligns pairs: for each a matrix per round, target by source tokens, EOS last.

        Raises:
            UserError: As of `score`, or the run is a language model.

        Example::

            >>> run = kvnmt.load("runs/mine")
            >>> rounds = run.align(["a b c"], ["A B C"])[0]
            >>> [matrix.shape for matrix in rounds]
            [(4, 4)]
        """
        sides = text_lines(source), text_lines(target)
        _refuse_language_model(self)
        return [pair.alignments for pair in score_lines(self, *sides, scored=False)]

    def explain(
        self,
        line: str,
        target: str | None = None,
        search: SearchConfig | None = None,
    ) -> Explanation:
        """Tells how a line is translated, or how a translation of it is read.

        Args:
            line: The source.
            target: The translation to read; None: the model's.
            search: How to search for the model's, as of `translate`.

        Raises:
            UserError: A text is no line, a language model is to translate, `translate`
                refuses the search, or a search is given with a target.

        Example::

            >>> run = kvnmt.load("runs/mine")
            >>> explanation = run.explain("a b c")
            >>> explanation.source_tokens
            ['a', 'b', 'c', '</s>']
            >>> explanation.draw("attention.png")
        """
        text_lines([line] if target is None else [line, target])
        if target is None:
            _refuse_language_model(self)
        elif search is not None:
            raise UserError("a target is read, not searched for; leave search out.")
        config = _checked(search, self)
        check_one(config, self.experiment.search, "explained")
        return explain(self, self.experiment.model, line, target, config)

    def __repr__(self) -> str:
        return _told(self)


def _told(run: Run) -> str:
    """A run in a line: what it is made of."""
    source, target = (len(words) for words in run.vocabularies)
    model, members = run.experiment.model, count_members(run.params)
    parts = [
        f"{count_parameters(run.params):,} parameters",
        f"vocabularies of {source:,} and {target:,}",
        f"attention {_name(attention.CATALOGUE, model.attention)}",
        f"decoder {_name(decoder.CATALOGUE, model.decoder)}",
        f"target context {_name(target_context.CATALOGUE, model.target_context)}",
    ]
    if members > 1:  # the config is that of the first
        parts[2:] = [f"an ensemble of {members}"]
    return f"<kvnmt.Run: {', '.join(parts)}>"


def _name(catalogue: Catalogue, options: Any) -> str:
    """What a mechanism is called; one that is listed no more, by its module."""
    try:
        return catalogue.told(options)
    except UserError:
        return f"of {type(options).__module__}"


def _checked(search: SearchConfig | None, run: Run) -> SearchConfig:
    """The search that is asked for, or that of the run."""
    if search is None:
        return run.experiment.search
    if not isinstance(search, SearchConfig):
        raise UserError(
            f"search is of type {type(search).__name__}; pass a kvnmt.SearchConfig."
        )
    check_search(search)
    check_asked(search, SearchConfig(), run.experiment.search)
    return search


def _request(
    run: Run,
    lines: Sequence[str],
    shortlist: Shortlist | None,
    prefixes: Iterable[str] | None,
) -> Request:
    """What is asked for beside a search."""
    _check_shortlist(shortlist, run)
    if prefixes is None:
        return Request(shortlist=shortlist)
    begun = text_lines(prefixes, ("prefix", "prefixes"))
    check_counts(len(lines), "lines", len(begun), "prefixes")
    ids = [begun_ids(run.vocabularies.target, text) for text in begun]
    return Request(shortlist=shortlist, prefixes=ids)


def _check_shortlist(shortlist: Shortlist | None, run: Run) -> None:
    """Refuses one of other words, were there as many of them."""
    if not (isinstance(shortlist, Shortlist) and shortlist.digests):
        return  # its sizes are compared where it is used
    for side, ours in digests(run.vocabularies).items():
        if shortlist.digests[side] != ours:
            raise UserError(
                f"the shortlist was read for another {side} vocabulary than the run's; "
                "read it anew with read_shortlist(path, run.vocabularies)."
            )


def _refuse_language_model(run: Run) -> None:
    if not run.model.reads_source:
        raise UserError(
            "the run holds a language model, which neither translates nor aligns."
        )
