# SPDX-License-Identifier: Apache-2.0
"""The training loop: steps, saves, validation, early stop, and leaving when asked."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from signal import SIGTERM
from signal import Signals as SignalName
from typing import Any, NamedTuple, NoReturn

import cattrs
import jax
import jax.numpy as jnp
from rich.console import Console

from kvnmt import devices
from kvnmt.data.batches import Batch
from kvnmt.data.corpus import Corpora
from kvnmt.data.stream import BatchAt, stream
from kvnmt.data.vocabularies import check_digests
from kvnmt.errors import StoppedError, UserError
from kvnmt.losses import Objective
from kvnmt.models import Model, Params
from kvnmt.training import device_memory as memory
from kvnmt.training import display, validation
from kvnmt.training import optimizer as optimizers
from kvnmt.training import records as metrics
from kvnmt.training import step as steps
from kvnmt.training.bad_numbers import report, too_many
from kvnmt.training.checkpoint import Checkpoints
from kvnmt.training.checkpoint_folder import DAMAGED, Keep, only_writer
from kvnmt.training.config import TrainingConfig, plan_batches
from kvnmt.training.optimizer import OptimizerConfig
from kvnmt.training.progress import Progress
from kvnmt.training.sharding import shardings
from kvnmt.training.signals import Signals

FETCH = 20  # steps whose figures are read together


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


class _Sent(NamedTuple):
    """A step that was sent off, whose figures are not read yet."""

    step: int
    positions: int  # of the target
    made: steps.Metrics


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
        about: What every checkpoint says of itself.
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
        about: dict[str, Any],
        console: Console,
    ):
        self.model, self.corpora, self.config = model, corpora, training
        self.objective, self.optimizer = objective, optimizer
        self.folder, self.about, self.console = folder, dict(about), console
        self.first = devices.part()[0] == 0  # of all processes: it writes
        self.mesh = devices.data_mesh(training.model_axis)
        self.plan = plan_batches(training, corpora.train.lengths, self.mesh)
        self.per_epoch = self.plan.per_epoch
        self.about["batches"] = self.plan.digest()
        self.total = training.epochs * self.per_epoch  # steps
        update = optimizers.build(optimizer, self.per_epoch)
        state = steps.init_state(params, update, training)
        places = shardings(state, self.mesh)
        self.state: Any = jax.device_put(state, places)  # a steps.TrainState
        key = jax.random.key(training.seed)
        self.train_step = steps.make_train_step(
            model, objective, update, key, training, self.mesh, places
        )
        self.eval_step = steps.make_eval_step(model)
        self.progress = Progress()
        self.seen: set[tuple[int, ...]] = set()  # shapes already compiled
        self.vote: jax.Array | None = None  # of all processes, whether to leave
        self.leaving = False

    def fit(self, *, resume: bool = False) -> Result:
        """Trains to the end or to an early stop, and keeps the best and the last.

        Raises:
            StoppedError: A signal asked for it; everything is saved.
            UserError: The largest batch does not fit, a checkpoint cannot be written,
                or too many steps in a row had numbers that are not finite.
        """
        self.start = time.monotonic()
        with ExitStack() as stack:
            step = self._open(stack, resume)
            make = BatchAt(
                *(self.corpora.train, self.plan, self.config.seed, devices.part())
            )
            batches = stack.enter_context(stream(make, step, self.config.workers))
            step = self._run(batches, step)
        progress = self.progress
        return Result(
            steps=step,
            best_step=progress.best_step,
            epochs=step / self.per_epoch,
            best_epoch=progress.best_step / self.per_epoch,
            best=progress.figures,
            tokens_per_second=progress.rate,
            minutes=progress.elapsed / 60,
            stopped_early=step < self.total,
        )

    def _open(self, stack: ExitStack, resume: bool) -> int:
        """Opens what is written to and finds where to begin, and if there is room."""
        keep = Keep(self.config.keep_last, self.config.keep_every)
        folder = self.folder / "checkpoints"
        devices.first_does(
            lambda: stack.enter_context(only_writer(self.folder, self._say))
        )
        self.signals = stack.enter_context(Signals(self._say))
        self.checkpoints = stack.enter_context(
            Checkpoints(folder, keep=keep, tell=self._say)
        )
        self.saved = step = self._restore() if resume else 0
        self.start -= self.progress.elapsed
        if self.first:
            self.log = metrics.Log(self.folder, self.progress.validated)
            stack.callback(self.log.close)
        if step < self.total and not self._stale():
            self._say("compiling the steps that need most memory")
            need = memory.check(self.train_step, self.state, self.plan, self.mesh)
            if need:
                self._say(str(need))
        return step

    def _run(self, batches: Iterator[Batch], step: int) -> int:
        """Trains, saves and validates by turns; returns the last step."""
        often = self.config.save_every
        while True:
            self.progress.elapsed = time.monotonic() - self.start
            if self._is_due(step):
                self._validate(step)
            if step >= self.total or self._stale():
                return step
            if self._asked_alone():
                self._leave(step)
            step = self._train(batches, step, self._next_stop(step))
            self.progress.elapsed = time.monotonic() - self.start
            leaving = self.leaving or self._asked_alone()
            if leaving or self._is_due(step) or (often and step % often == 0):
                self._save(step)
            if leaving:
                self._leave(step)

    def _save(self, step: int) -> None:
        self.checkpoints.save(self.state, asdict(self.progress), self.about)
        self.saved = step

    def _stale(self) -> bool:
        return self.progress.since_best >= self.config.patience

    def _is_due(self, step: int) -> bool:
        every = self.config.validate_every or self.per_epoch
        due = step % every == 0 or step == self.total
        return due and step > self.progress.validated

    def _next_stop(self, step: int) -> int:
        """Where training stops to validate or to save; no later than an epoch."""
        every = (self.config.validate_every, self.config.save_every, self.per_epoch)
        return min(self.total, *((step // n + 1) * n for n in every if n))

    def _restore(self) -> int:
        last = self.checkpoints.last_step()
        if devices.agree(-1 if last is None else last) >= 0:
            found = self.checkpoints.find("last")
            words = self.corpora.vocabularies
            check_digests(found.about.get("vocabularies"), words, self.folder)
            self.state = self.checkpoints.restore(self.state, found.step)
            if found.about.get("batches") != self.about["batches"]:
                raise UserError(
                    f"the run in '{self.folder}' was trained on other pairs, or "
                    "batched for another number of devices, so its place among them "
                    "means nothing here; put that back, or begin another run with "
                    "--training.warm-start."
                )
            self.progress = cattrs.structure(found.progress, Progress)
            self._scale()
        elif (self.folder / DAMAGED).exists():
            raise UserError(
                f"'{self.folder}' has no checkpoint left that is whole, see "
                f"'{self.folder / DAMAGED}'; begin another run."
            )
        step = int(self.state.step)
        self._say(f"resuming after step {step}")
        return step

    def _scale(self) -> None:
        scale = jnp.float32(self.progress.scale)
        scale = devices.replicate(scale, self.mesh)
        self.state = self.state.replace(scale=scale)

    def _train(self, batches: Iterator[Batch], step: int, until: int) -> int:
        """Runs steps up to ``until``, or until a signal asks; returns the last."""
        sent: list[_Sent] = []
        epoch, done = divmod(step, self.per_epoch)
        with display.Bar(self.console, epoch + 1, done, self.per_epoch) as bar:
            clock = time.monotonic()
            for number in range(step, until):
                batch = next(batches)
                new_shape = batch.source.shape + batch.target.shape not in self.seen
                self.seen.add(batch.source.shape + batch.target.shape)
                sent.append(self._send(number, batch))
                bar.advance()
                now = new_shape or number + 1 == until or self._asked_alone()
                if not now and len(sent) < FETCH:
                    continue
                # The step just sent off may still run: read the ones before it.
                cut = len(sent) if now else len(sent) - 1
                tokens, sent = self._read(sent[:cut]), sent[cut:]
                clock, before = time.monotonic(), clock
                if not new_shape:
                    self.progress.tokens += tokens
                    self.progress.seconds += clock - before
                bar.note(self._note())
                if self._agree_to_leave():
                    self._read(sent)
                    return number + 1
        return until

    def _send(self, step: int, batch: Batch) -> _Sent:
        arrays = devices.split_rows(batch, self.mesh)
        try:
            with jax.transfer_guard("disallow"):
                self.state, made = self.train_step(self.state, *arrays)
        except jax.errors.JaxRuntimeError as error:
            (rows, S), T = batch.source.shape, batch.target.shape[1]
            raise memory.explained(error, rows, S, T) from None
        return _Sent(step, batch.target.size * devices.part()[1], made)

    def _read(self, sent: list[_Sent]) -> int:
        """Waits for steps and takes their figures; returns their real tokens."""
        tokens = 0
        for one in jax.device_get(sent):
            tokens += int(one.made.loss.tokens)
            self.progress.sums.add(one.made, int(one.positions))
            self._check_numbers(int(one.step), bool(one.made.skipped))
        return tokens

    def _asked_alone(self) -> bool:
        """Whether a signal came and no other process has to know of it."""
        return bool(self.signals.asked) and not self.mesh.is_multi_process

    def _agree_to_leave(self) -> bool:
        """Whether a signal came to any process; several know it one fetch later."""
        if not self.mesh.is_multi_process:
            return self._asked_alone()
        before, self.vote = self.vote, devices.vote(bool(self.signals.asked), self.mesh)
        self.leaving = before is not None and bool(before)
        return self.leaving

    def _leave(self, step: int) -> NoReturn:
        """Saves if there is anything new, and ends the run."""
        if step > self.saved:
            self._save(step)
        self.checkpoints.wait()
        name = SignalName(self.signals.asked or SIGTERM).name
        kept = f"after step {step}, which is saved" if step else "before the first step"
        raise StoppedError(
            f"stopped by {name} {kept}; go on with --resume.",
            self.signals.asked or SIGTERM,
        )

    def _check_numbers(self, step: int, skipped: bool) -> None:
        """Counts steps that changed nothing; stops after too many in a row."""
        progress = self.progress
        progress.skipped += skipped
        progress.skipped_last = progress.skipped_last + 1 if skipped else 0
        if progress.skipped_last >= self.config.skip_at_most:
            make = BatchAt(self.corpora.train, self.plan, self.config.seed)
            where = {"step": step + 1, "seed": self.config.seed}
            devices.first_does(
                lambda: report(self.folder, self.corpora, make.lines(step), **where)
            )
            raise too_many(self.folder, progress.skipped_last, step + 1)

    def _validate(self, step: int) -> None:
        """Validates, writes the figures down, and rates the checkpoint of this step."""
        try:
            # Others would wait for a process that leaves: several finish it.
            alone = not self.mesh.is_multi_process
            with self.signals.breaking() if alone else nullcontext():
                found = self._figures()
        except KeyboardInterrupt:
            self._leave(step)
        progress, config = self.progress, self.optimizer
        rate: Any = optimizers.learning_rate(config, self.per_epoch)(step)
        record = {
            **{"step": step, "epoch": step / self.per_epoch},
            **progress.sums.figures(self.objective),
            **found,
            **{
                "learning_rate": float(rate) * progress.scale,
                "skipped": progress.skipped,
            },
            **{"tokens_per_second": progress.rate},
        }
        score = validation.score(self.config.metric, found)
        better = progress.rated(step, score, found)
        if config.plateau < 1 and progress.since_fall >= config.plateau_patience:
            progress.since_fall, progress.scale = 0, progress.scale * config.plateau
            self._scale()
        devices.first_does(lambda: self.log.add(record))
        self._say(display.validated(record, better))
        self.checkpoints.rate(step, score, asdict(progress))

    def _figures(self) -> dict[str, float]:
        found = validation.figures(
            *(self.model, self.eval_step, self.state.served, self.corpora),
            *(self.config, self.mesh),
        )
        return devices.agree_on_figures(found)

    def _note(self) -> str:
        progress = self.progress
        sums = progress.sums
        return display.running(sums.loss, progress.skipped, sums.padding, progress.rate)

    def _say(self, message: str) -> None:
        with suppress(BrokenPipeError, SystemExit):  # who read it may be gone
            self.console.print(message, highlight=False, soft_wrap=True)
