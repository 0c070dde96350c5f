# SPDX-License-Identifier: Apache-2.0
"""The training loop: steps, validation, checkpoints, early stop."""

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
from jax.sharding import Mesh
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from kvnmt import devices
from kvnmt.data.batches import Batch, Encoded
from kvnmt.data.corpus import Corpora, check_digests, digests
from kvnmt.data.plan import Plan, by_pairs, by_tokens
from kvnmt.data.stream import BatchAt, stream
from kvnmt.losses import Objective
from kvnmt.models import Model, Params
from kvnmt.training import metrics
from kvnmt.training import optimizer as optimizers
from kvnmt.training import step as steps
from kvnmt.training.bad_numbers import report, too_many
from kvnmt.training.checkpoint import Checkpoints
from kvnmt.training.optimizer import OptimizerConfig
from kvnmt.training.validation import validation_bleu, validation_loss


@dataclass(frozen=True)
class TrainingConfig:
    """How long, how much at a time, and when to stop."""

    epochs: int = 20  # at most
    batch_size: int = 80  # pairs, over all devices
    batch_tokens: int | None = None  # or tokens of the longer side, padding included
    shapes: int = 12  # at most so many padded shapes are compiled
    workers: int = 0  # processes that make batches; 0: a thread
    seed: int = 1
    validate_every: int = 0  # steps; 0: after every epoch
    metric: Literal["bleu", "loss"] = "bleu"  # chooses the best checkpoint
    bleu_tokenize: str = "13a"  # sacreBLEU's; none: the text is tokenised
    patience: int = 5  # validations without a better score before an early stop
    skip_at_most: int = 10  # steps in a row whose numbers are not finite
    keep_last: int = 1  # newest checkpoints kept beside the best; for kvnmt average
    warm_start: Path | None = None  # run directory of a trained model to start from


class Result(NamedTuple):
    """What a finished training has to say."""

    steps: int
    best_step: int
    epochs: float
    best_epoch: float
    best: dict[str, float]  # validation figures of the best checkpoint
    tokens_per_second: float  # real target tokens, compiling and validating apart
    minutes: float
    stopped_early: bool


@dataclass
class _Speed:
    """Time and tokens of steps whose program was already compiled."""

    tokens: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0


@dataclass
class _Progress:
    """What is saved beside a checkpoint to go on from it."""

    best: float = -math.inf
    best_step: int = 0
    since_best: int = 0
    figures: dict[str, float] = field(default_factory=dict)
    tokens: int = 0
    seconds: float = 0.0
    elapsed: float = 0.0
    skipped: int = 0  # steps that changed nothing, since a number was not finite
    skipped_last: int = 0  # how many of them in a row


class Trainer:
    """One training run; `fit` does the work.

    Args:
        model: The functions.
        params: Where to start.
        corpora: Pairs and vocabularies.
        training: Lengths of things.
        objective: What is minimised.
        optimizer: How.
        folder: Run directory, which exists.
        console: Where people read.
    """

    def __init__(
        self,
        model: Model,
        params: Params,
        corpora: Corpora,
        training: TrainingConfig,
        objective: Objective,
        optimizer: OptimizerConfig,
        folder: Path,
        console: Console,
    ):
        self.model, self.corpora, self.config = model, corpora, training
        self.folder, self.console = folder, console
        self.first = devices.part()[0] == 0  # of all processes: it writes
        self.mesh = devices.data_mesh()
        self.plan = _plan(training, corpora.train, self.mesh)
        self.per_epoch = self.plan.per_epoch
        update = optimizers.build(optimizer, self.per_epoch)
        state = steps.init_state(params, update)
        self.state = devices.replicate(state, self.mesh)
        key = jax.random.key(training.seed)
        self.train_step = steps.make_train_step(model, objective, update, key)
        self.eval_step = steps.make_eval_step(model)
        self.progress = _Progress()
        self.speed = _Speed()
        self.seen: set[tuple[int, ...]] = set()  # shapes already compiled

    def fit(self, *, resume: bool = False) -> Result:
        """Trains to the end or to an early stop, and keeps the best and the last."""
        start = time.monotonic()
        folder, kept = self.folder / "checkpoints", self.config.keep_last
        with Checkpoints(folder, keep_last=kept) as checkpoints:
            if resume:
                self._restore(checkpoints)
            before = self.progress.elapsed
            every = self.config.validate_every or self.per_epoch
            total = self.config.epochs * self.per_epoch
            step = int(self.state.step)
            seed, part = self.config.seed, devices.part()
            make = BatchAt(self.corpora.train, self.plan, seed, part)
            with stream(make, step, self.config.workers) as batches:
                while step < total and not self._stale():
                    until = min(total, (step // every + 1) * every)
                    train_loss = self._train(batches, step, until)
                    step = until
                    figures = {"train_loss": train_loss, **self._validate()}
                    self.progress.elapsed = before + time.monotonic() - start
                    self._record(step, figures)
                    self._save(checkpoints, self._score(figures))
        return Result(
            steps=step,
            best_step=self.progress.best_step,
            epochs=step / self.per_epoch,
            best_epoch=self.progress.best_step / self.per_epoch,
            best=self.progress.figures,
            tokens_per_second=self.speed.rate,
            minutes=self.progress.elapsed / 60,
            stopped_early=step < total,
        )

    def _save(self, checkpoints: Checkpoints, score: float) -> None:
        words = digests(self.corpora.vocabularies)
        progress = asdict(self.progress) | {"vocabularies": words}
        checkpoints.save(self.state, score, progress)

    def _stale(self) -> bool:
        return self.progress.since_best >= self.config.patience

    def _restore(self, checkpoints: Checkpoints) -> None:
        if checkpoints.last_step() is not None:
            self.state, progress = checkpoints.restore(self.state)
            trained = progress.pop("vocabularies", None)
            check_digests(trained, self.corpora.vocabularies, self.folder)
            self.progress = _Progress(**progress)
            self.speed = _Speed(self.progress.tokens, self.progress.seconds)
        step = int(self.state.step)
        if self.first:
            metrics.cut(self.folder, step)
        self.console.print(f"resuming after step {step}")

    def _train(self, batches: Iterator[Batch], step: int, until: int) -> float:
        """Runs steps up to ``until``; returns the mean loss in nats per token."""
        nats, tokens, waiting = 0.0, 0, []
        epoch = step // self.per_epoch + 1
        with _bar(self.console) as bar:
            task = bar.add_task(f"epoch {epoch}", total=until - step, note="")
            clock = time.monotonic()
            for done in range(step, until):
                batch = next(batches)
                new_shape = batch.source.shape not in self.seen
                arrays = devices.split_rows(batch, self.mesh)
                self.state, made = self.train_step(self.state, *arrays)
                waiting.append((done, made.loss, made.skipped))
                if new_shape or done + 1 == until or len(waiting) >= 20:
                    # The step just sent off may still run: read the ones before it.
                    hold = 0 if new_shape or done + 1 == until else 1
                    ready, waiting = _take(waiting, hold)
                    words = 0
                    for place, sums, skipped in jax.device_get(ready):
                        words += int(sums.tokens)
                        if not self._is_bad(int(place), bool(skipped)):
                            nats += float(sums.nats)
                            tokens += int(sums.tokens)
                    now = time.monotonic()
                    if not new_shape:
                        self.speed.tokens += words
                        self.speed.seconds += now - clock
                    clock = now
                    self.seen.add(batch.source.shape)
                    bar.update(task, note=self._note(nats, tokens))
                bar.advance(task)
        return nats / max(tokens, 1)

    def _is_bad(self, step: int, skipped: bool) -> bool:
        """Counts steps that changed nothing; stops after too many in a row."""
        progress = self.progress
        progress.skipped += skipped
        progress.skipped_last = progress.skipped_last + 1 if skipped else 0
        if progress.skipped_last >= self.config.skip_at_most:
            make = BatchAt(self.corpora.train, self.plan, self.config.seed)
            where = {"step": step + 1, "seed": self.config.seed}
            if self.first:
                report(self.folder, self.corpora, make.lines(step), **where)
            raise too_many(self.folder, progress.skipped_last, step + 1)
        return skipped

    def _note(self, nats: float, tokens: int) -> str:
        loss = nats / max(tokens, 1)
        return (
            f"loss {loss:.3f}  {self._skipped()}{self.speed.rate:,.0f} target tokens/s"
        )

    def _skipped(self) -> str:
        skipped = self.progress.skipped
        return f"{skipped} steps skipped  " if skipped else ""

    def _validate(self) -> dict[str, float]:
        loss = validation_loss(
            *(self.eval_step, self.state.params, self.corpora.valid),
            *(self.config.batch_size, self.mesh),
        )
        figures = {"valid_loss": loss}
        if self.model.config.reads_source:
            figures["valid_bleu"] = validation_bleu(
                self.model, self.state.params, self.corpora, self.config.bleu_tokenize
            )
        return figures

    def _score(self, figures: dict[str, float]) -> float:
        if self.config.metric == "bleu" and "valid_bleu" in figures:
            return figures["valid_bleu"]
        return -figures["valid_loss"]  # a language model has no other

    def _record(self, step: int, figures: dict[str, float]) -> None:
        """Writes the figures down, for machines and for people."""
        progress, score = self.progress, self._score(figures)
        better = score > progress.best
        if better:
            progress.best, progress.best_step = score, step
            progress.figures = figures
        progress.since_best = 0 if better else progress.since_best + 1
        progress.tokens, progress.seconds = self.speed.tokens, self.speed.seconds
        record = {"step": step, "epoch": step / self.per_epoch, **figures}
        record["tokens_per_second"] = self.speed.rate
        record["skipped"] = progress.skipped
        if self.first:
            metrics.add(self.folder, record)
        self.console.print(
            f"epoch {step / self.per_epoch:5.4g}  step {step:6d}  "
            f"train loss {figures['train_loss']:.3f}  "
            f"valid loss {figures['valid_loss']:.3f}  "
            f"{self._quality(figures)}  "
            f"{self._skipped()}{self.speed.rate:,.0f} target tokens/s"
            f"{'  best' if better else ''}",
            highlight=False,
            soft_wrap=True,
        )

    def _quality(self, figures: dict[str, float]) -> str:
        if "valid_bleu" in figures:
            return f"BLEU {figures['valid_bleu']:5.2f}"
        return f"perplexity {math.exp(min(figures['valid_loss'], 700)):.1f}"


def _plan(config: TrainingConfig, corpus: Encoded, mesh: Mesh) -> Plan:
    lengths, shapes = corpus.lengths, config.shapes
    if config.batch_tokens:
        # The same batches on any number of devices that divides eight.
        multiple = math.lcm(8, mesh.size)
        return by_tokens(lengths, config.batch_tokens, shapes, multiple=multiple)
    devices.check_rows(mesh, config.batch_size)
    return by_pairs(lengths, config.batch_size, shapes)


def _take(waiting: list[Any], hold: int) -> tuple[list[Any], list[Any]]:
    cut = len(waiting) - hold
    return waiting[:cut], waiting[cut:]


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
