# SPDX-License-Identifier: Apache-2.0
"""Figures of several steps, against those computed by hand."""

import numpy as np
import pytest

from kvnmt.training.losses import Loss, Objective
from kvnmt.training.progress import Progress, Sums
from kvnmt.training.step import Metrics


def made(nats: float, tokens: int, norm: float, skipped: bool = False) -> Metrics:
    """What a step gives; its other terms are parts of its nats."""
    terms = {
        "atteos": nats / 2,
        "subtractive": nats / 4,
        "guided": nats / 5,
        "risk": nats / 8,
    }
    numbers = {"total": 99.0, "nats": nats, "tokens": tokens} | terms
    loss = Loss(**{name: np.asarray(value) for name, value in numbers.items()})
    return Metrics(loss, np.asarray(norm), np.asarray(skipped))


def test_steps_are_counted_by_their_tokens():
    """Losses per token, the norm per step; one that was skipped is none."""
    sums = Sums()
    sums.add(made(nats=20.0, tokens=10, norm=1.0), positions=16)
    sums.add(made(nats=np.nan, tokens=7, norm=np.inf, skipped=True), positions=16)
    sums.add(made(nats=10.0, tokens=20, norm=4.0), positions=24)
    every = dict.fromkeys(("atteos", "subtractive", "guided", "risk"), 1.0)
    assert sums.figures(Objective(**every)) == pytest.approx(
        {
            "train_loss": 1.0,
            "gradient_norm": 2.5,
            "padding": 0.25,
            "train_atteos": 0.5,
            "train_subtractive": 0.25,
            "train_guided": 0.2,
            "train_risk": 0.125,
        }
    )
    used = set(sums.figures(Objective(guided=0.5)))
    assert used == {"train_loss", "gradient_norm", "padding", "train_guided"}


def test_a_rate_is_that_of_its_own_steps():
    """Not of the run's whole life, which another device may have begun."""
    progress = Progress(tokens=10_000, seconds=100.0)
    assert (progress.sums.rate, progress.rate) == (0, 100)
    progress.time(900, 1.0)
    progress.logged = Sums()
    progress.time(1000, 1.0)
    assert (progress.logged.rate, progress.sums.rate) == (1000, 950)
    assert progress.rate == 11_900 / 102


def test_waiting_is_a_share_of_the_time():
    progress = Progress()
    assert progress.sums.waiting == 0
    progress.time(900, 2.0, 0.5)
    progress.logged = Sums()
    progress.time(900, 2.0, 1.5)
    assert (progress.sums.waiting, progress.logged.waiting) == (0.5, 0.75)


def test_where_all_steps_were_skipped_there_is_no_figure():
    sums = Sums()
    sums.add(made(nats=np.nan, tokens=7, norm=np.inf, skipped=True), positions=16)
    figures = sums.figures(Objective(guided=0.5))
    assert len(figures) == 4 and np.isnan([*figures.values()]).all()
