# SPDX-License-Identifier: Apache-2.0
"""One line, its translation, and how the model came to it, for a notebook."""

import base64
import html
import io
import os
from collections.abc import Callable
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvnmt.data.vocabulary import EOS
from kvnmt.errors import UserError
from kvnmt.inference.config import SearchConfig
from kvnmt.inference.ensemble import count_members
from kvnmt.inference.recording import (
    Changes,
    SignedWeights,
    has_memory,
    has_signs,
    memory_changes,
    signed_weights,
)
from kvnmt.inference.score import score
from kvnmt.inference.trained import Trained
from kvnmt.inference.translate import translate
from kvnmt.model.config import ModelConfig


class Explanation(NamedTuple):
    """What a model did with one line; the last line of a notebook's cell shows it.

    Row t of every matrix belongs to the t-th target token, column j of an alignment
    and of a memory to the j-th source token. The end of sentence is the last of both.
    """

    line: str
    translation: str
    source_tokens: list[str]  # S of them, "</s>" last
    target_tokens: list[str]  # T of them, "</s>" last
    token_log_probs: list[float]  # T natural logarithms
    alignments: list[NDArray[np.floating]]  # [T, S] for each round of attention
    self_attention: list[NDArray[np.floating]]  # [T, T], as `kvnmt.inference.score`
    memory: Changes | None  # what each write forgot and added; None: no such memory
    weights: SignedWeights | None  # with signs; None: the alignment has none to hide
    members: int = 1  # of an ensemble, which has no one memory and no one weight

    @property
    def log_prob(self) -> float:
        """The log-probability of the whole translation, in nats."""
        return sum(self.token_log_probs)

    def draw(self, path: str | os.PathLike[str] | BinaryIO) -> None:
        """Draws the alignment, a panel for each round, as PNG, PDF or SVG.

        Raises:
            UserError: Nothing is aligned, or the file cannot be written.
        """
        from kvnmt.pictures.heatmaps import attention_heatmap  # matplotlib is slow

        if not self.alignments:
            raise UserError("the system has no attention, so there is nothing to draw.")
        attention_heatmap(self.alignments, self.source_tokens, self.target_tokens, path)

    def draw_memory(self, path: str | os.PathLike[str] | BinaryIO) -> None:
        """Draws what each write forgot and added, panels for each round, likewise.

        Raises:
            UserError: There is no memory that is rewritten, or the file cannot be
                written.
        """
        from kvnmt.pictures.heatmaps import memory_heatmap  # matplotlib is slow

        if self.memory is None:
            self._refuse_several("memory")
            raise UserError(
                "the system tells of no memory that it rewrites: its attention has no "
                "'explain'."
            )
        memory_heatmap(
            self.memory.forgotten,
            self.memory.added,
            self.source_tokens,
            self.target_tokens,
            path,
        )

    def draw_weights(self, path: str | os.PathLike[str] | BinaryIO) -> None:
        """Draws the weights with signs, a panel for each head and round, likewise.

        Raises:
            UserError: There are none, or the file cannot be written.
        """
        from kvnmt.pictures.heatmaps import signed_heatmap  # matplotlib is slow

        if self.weights is None:
            self._refuse_several("signed weights")
            raise UserError(
                "the system has no signed weights, as its attention has no 'weigh'; "
                "see the alignment."
            )
        words = self.source_tokens, self.target_tokens
        signed_heatmap(self.weights.signed, self.weights.own, *words, path)

    def draw_self_attention(self, path: str | os.PathLike[str] | BinaryIO) -> None:
        """Draws the words that each step looked back at, likewise.

        There is a panel for each mechanism that does.

        Raises:
            UserError: None does, or the file cannot be written.
        """
        from kvnmt.pictures.heatmaps import self_attention_heatmap  # matplotlib is slow

        if not self.self_attention:
            raise UserError("the system does not look back; there is nothing to draw.")
        self_attention_heatmap(self.self_attention, self.target_tokens, path)

    def _refuse_several(self, what: str) -> None:
        if self.members > 1:
            raise UserError(
                f"an ensemble has no one {what} to draw; explain one of its members."
            )

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<td title='{value:.3f} nats'>{html.escape(token)}<br>"
            f"<small>{np.exp(value):.0%}</small></td>"
            for token, value in zip(self.target_tokens, self.token_log_probs)
        )
        shown = (
            f"<p>{html.escape(self.line)}</p><p><b>{html.escape(self.translation)}</b> "
            f"({self.log_prob:.2f} nats)</p><table><tr>{cells}</tr></table>"
        )
        if self.alignments:
            shown += _picture(self.draw, "alignment")
        if self.self_attention:
            shown += _picture(self.draw_self_attention, "earlier words looked at")
        if self.memory is not None:
            shown += _picture(self.draw_memory, "what the memory forgot and added")
        if self.weights is not None:
            shown += _picture(self.draw_weights, "exact weights with their signs")
        return shown


def explain(
    run: Trained,
    config: ModelConfig,
    line: str,
    target: str | None,
    search: SearchConfig,
) -> Explanation:
    """Translates a line, or reads a translation of it, and tells what happened.

    Args:
        run: The trained model.
        config: What it is made of.
        line: The source.
        target: The translation to read; None: the model's.
        search: How to search for the model's.
    """
    words, model, params = run.vocabularies, run.model, run.params
    source = [words.source.encode(line)]
    if target is None:
        ids = translate(model, params, source, search)[0].ids
        target = words.target.decode(ids)
    else:
        ids = words.target.encode(target)
    pair = score(model, params, source, [ids])[0]
    memory = weights = None
    members = count_members(params)
    if members == 1:  # of an ensemble there is no one memory
        if has_memory(config):
            memory = memory_changes(config, params, source, [ids])[0]
        if has_signs(config):
            weights = signed_weights(config, params, source, [ids])[0]
    return Explanation(
        line=line,
        translation=target,
        source_tokens=words.source.pieces([*source[0], EOS]),
        target_tokens=words.target.pieces([*ids, EOS]),
        token_log_probs=pair.token_log_probs,
        alignments=pair.alignments,
        self_attention=pair.self_attention,
        memory=memory,
        weights=weights,
        members=members,
    )


def _picture(draw: Callable[[BinaryIO], None], what: str) -> str:
    """A picture as a piece of HTML that needs no other file."""
    file = io.BytesIO()
    draw(file)
    data = base64.b64encode(file.getvalue()).decode()
    return f"<p><img src='data:image/png;base64,{data}' alt='{what}'></p>"
