# SPDX-License-Identifier: Apache-2.0
"""What training knows beside the arrays; saved with them, so that it can go on."""

import math
from dataclasses import dataclass, field

from kvnmt.training.losses import TERMS, Objective
from kvnmt.training.step import Metrics

FETCH = 20  # steps whose figures are read together, ...
WAIT = 1.0  # ... fewer if these take longer: a signal waits for what was sent off


def together(seconds: float) -> int:
    """How many steps are sent off before figures are read, if one takes so long.

    0 if that is not known.
    """
    return max(2, min(FETCH, round(WAIT / seconds))) if seconds > 0 else 0


@dataclass
class Sums:
    """Of steps, such as those since the last validation."""

    steps: int = 0
    nats: float = 0.0
    atteos: float = 0.0
    subtractive: float = 0.0
    guided: float = 0.0
    risk: float = 0.0
    gradient_norm: float = 0.0
    tokens: int = 0  # real ones of the target
    positions: int = 0  # of the target, padding included
    timed: int = 0  # tokens of steps whose program was compiled already ...
    seconds: float = 0.0  # ... and their time
    waited: float = 0.0  # seconds of these, for a batch

    def add(self, made: Metrics, positions: int) -> None:
        """Counts a step, unless it was skipped."""
        if bool(made.skipped):
            return
        self.steps += 1
        self.positions += positions
        self.nats += float(made.loss.nats)
        for name in TERMS:
            more = float(getattr(made.loss, name))
            setattr(self, name, getattr(self, name) + more)
        self.gradient_norm += float(made.gradient_norm)
        self.tokens += int(made.loss.tokens)

    @property
    def loss(self) -> float:
        """Nats per target token; nan, as all figures here, where no step counts."""
        return _share(self.nats, self.tokens)

    @property
    def rate(self) -> float:
        """Real target tokens per second, compiling apart; 0: none was timed."""
        return self.timed / self.seconds if self.seconds else 0.0

    @property
    def padding(self) -> float:
        """Share of the target positions that hold no token."""
        return 1 - _share(self.tokens, self.positions)

    @property
    def waiting(self) -> float:
        """Share of the time in which no batch was there yet; 0: none was timed."""
        return min(1.0, self.waited / self.seconds) if self.seconds else 0.0

    def figures(self, objective: Objective) -> dict[str, float]:
        """What is written down of them; per target token where it is a loss."""
        figures = {
            "train_loss": self.loss,
            "gradient_norm": _share(self.gradient_norm, self.steps),
            "padding": self.padding,
        }
        used = (name for name in TERMS if getattr(objective, name))
        return figures | {
            f"train_{name}": _share(getattr(self, name), self.tokens) for name in used
        }


def _share(amount: float, count: int) -> float:
    return amount / count if count else math.nan


@dataclass
class Progress:
    """What is saved beside a checkpoint."""

    sums: Sums = field(default_factory=Sums)
    logged: Sums = field(default_factory=Sums)  # since the last line of steps.jsonl
    validated: int = 0  # the step of the last validation
    best: float = -math.inf
    best_step: int = 0
    figures: dict[str, float] = field(default_factory=dict)  # of the best
    since_best: int = 0  # validations
    since_fall: int = 0  # ... and since the rate fell for a plateau
    scale: float = 1.0  # of the learning rate, after such falls
    skipped: int = 0  # steps that changed nothing, since a number was not finite
    skipped_last: int = 0  # how many of them in a row
    tokens: int = 0  # of steps whose program was compiled already ...
    seconds: float = 0.0  # ... and their time
    elapsed: float = 0.0  # all time

    def time(self, tokens: int, seconds: float, waited: float = 0.0) -> None:
        """Takes how long a step took, whose program was compiled already.

        Args:
            tokens: Real ones of its target.
            seconds: From its batch on.
            waited: Of these, for the batch.
        """
        self.tokens += tokens
        self.seconds += seconds
        for sums in (self.sums, self.logged):
            sums.timed += tokens
            sums.seconds += seconds
            sums.waited += waited

    @property
    def rate(self) -> float:
        """Real target tokens per second of all, compiling and validating apart."""
        return self.tokens / self.seconds if self.seconds else 0.0

    def rated(self, step: int, score: float, figures: dict[str, float]) -> bool:
        """Takes what a validation found; whether it is the best so far."""
        better = score > self.best
        if better:
            self.best, self.best_step, self.figures = score, step, figures
        self.since_best = 0 if better else self.since_best + 1
        self.since_fall = 0 if better else self.since_fall + 1
        self.validated, self.sums = step, Sums()
        return better
