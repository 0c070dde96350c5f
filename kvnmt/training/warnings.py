# SPDX-License-Identifier: Apache-2.0
"""What is told before steps are made: which there will not be, or teach little."""

from collections.abc import Iterator

from kvnmt.training.job import Job
from kvnmt.training.loop_state import LoopState, is_due, is_stale


def warnings(job: Job, state: LoopState) -> Iterator[str]:
    """Sentences on bounds that are not reached, or already are, and on the rate."""
    config, end = job.config, job.steps
    steps, validate_every = config.steps or 0, config.validate_every
    if state.step >= end and not is_due(job, state):
        bound = "steps" if end < config.epochs * job.plan.per_epoch else "epochs"
        most = getattr(config, bound)
        yield f"--training.{bound} {most} is reached; give a greater one to go on"
    if steps > end:
        yield (
            f"--training.epochs {config.epochs} end it after {end:,} steps, before "
            f"--training.steps {steps:,}; give more of them"
        )
    elif validate_every > end:
        yield (
            f"--training.validate-every {validate_every:,} is beyond the end, step "
            f"{end:,}: only that is validated, and nothing stops sooner; give a "
            "smaller number, or 0 for every epoch"
        )
    if config.min_epochs * job.plan.per_epoch >= end > state.step:
        yield (
            f"--training.min-epochs {config.min_epochs} ends no sooner than the "
            "training itself, so that --training.patience never stops it"
        )
    if not (state.step or config.ema_ramp or config.warm_start):
        yield (
            "warning: with --training.no-ema-ramp the running mean begins as arrays "
            "that have learnt nothing; leave it out, or give --training.warm-start"
        )
    if state.step < end and not is_stale(job, state):
        yield from _of_rate(job)


def _of_rate(job: Job) -> Iterator[str]:
    """Warnings of a rate that is 0, or falls before anything is learnt."""
    schedule, end = job.optimizer.schedule, job.optimizer.schedule_steps or 0
    if job.optimizer.ends and end < job.steps:
        yield (
            f"warning: --optimizer.schedule {schedule} reaches 0 at step {end:,}, and "
            f"steps up to {job.steps:,} learn nothing from there on; raise "
            "--optimizer.schedule-steps"
        )
    if schedule == "inverse_sqrt" and not job.optimizer.warmup:
        yield (
            "warning: without a warm-up --optimizer.schedule inverse_sqrt falls as "
            "1 / sqrt(step) from the first step on, to 3% of the rate at step 1,000; "
            "give --optimizer.warmup 4000"
        )
