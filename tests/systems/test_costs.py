# SPDX-License-Identifier: Apache-2.0
"""The table of systems tells what the models are."""

import dataclasses
import io
import json

import jax
import jax.numpy as jnp
import pytest
from rich.console import Console

from kvnmt import cli
from kvnmt.errors import UserError
from kvnmt.model import assembly
from kvnmt.model.config import ModelConfig
from kvnmt.systems import costs as overview
from kvnmt.systems.costs import OverviewConfig
from kvnmt.systems.named import SYSTEMS, system

SMALL = OverviewConfig(
    model=ModelConfig(embedding=6, encoder=12, state=12, alignment=4, merge="sum"),
    vocabulary=30,
    source_length=7,
    target_length=4,
)


@pytest.fixture(scope="module", name="rows")
def _rows() -> dict[str, overview.Row]:
    return {row.system: row for row in overview.overview(SMALL)}


def test_every_system_is_told(rows):
    assert list(rows) == list(SYSTEMS)
    for name, row in rows.items():
        assert row.costs is not None, (name, row.misfit)
        assert row.paper and row.costs.parameters and row.costs.carried_bytes


def test_what_is_carried(rows):
    carried = {name: row.costs.carried_bytes for name, row in rows.items()}
    D, S, T, E = 12, 7, 4, 6
    assert carried["rnnsearch-star"] == 4 * D
    assert carried["kvmematt-r2"] == 4 * (D + S * D)  # one key memory for all rounds
    assert carried["coverage-neural-10"] == 4 * (D + 10 * S)
    assert carried["attn"] == 4 * (2 * 2 * D)
    assert carried["mean-residual"] == 4 * (D + E + 1)
    assert carried["self-attentive-rnn"] == 4 * (D + 2 * T * D + 1)
    assert carried["memdec"] == 4 * (D + 8 * D + 8)
    assert carried["delta-memory"] == carried["slots"] == 4 * D
    memory, change = 4 * 1 * 3, 4 * 1 * 1  # 4 heads of A = 4 by C = 12 numbers
    assert carried["gated-delta-memory"] == 4 * (D + memory + change)
    assert carried["delta-residual"] == 4 * (D + memory)
    assert carried["slot-residual"] == 4 * (D + 8 * (4 + D))
    layers = 4 * 2 * (2 * T * D + D + 1)
    assert carried["transformer"] == layers
    assert carried["transformer-kvmematt-r2"] == layers + 4 * S * D


def test_what_runs_inside_the_scan(rows):
    costs = {name: row.costs for name, row in rows.items()}
    D = 12
    assert costs["attn"].inside == 2 * 4 * D * D + 4 * D * D  # no attention at all
    assert not any("attention" in w for w in costs["attn"].weights_inside)
    assert any("attention" in w for w in costs["kvmematt-r1"].weights_inside)
    star, mean = costs["rnnsearch-star"], costs["self-attentive-residual"]
    assert star.inside == mean.inside and star.outside < mean.outside
    E, T = 6, 4
    scored = E * E + E + T * E  # projected, scored, mixed: what is shown costs nothing
    assert mean.outside - costs["mean-residual"].outside == scored
    assert costs["memory-rnn"].inside > star.inside
    assert "output" not in star.weights_inside
    assert costs["transformer"].inside == 0
    inside = costs["transformer-kvmematt-r1"].weights_inside
    assert all("rounds" in weights for weights in inside)


def test_a_scan_behind_the_decoder_is_outside():
    """A target context or a readout may scan too; that is not the decoder's."""
    model = assembly.build(system("kvmematt-r1").model(SMALL.model), 30, 30)

    def forward(params, source, target):
        prediction = model.forward(params, source, target)
        mix = jnp.eye(30)

        def step(state, logits):
            state = state @ mix + logits
            return state, state

        logits = jnp.swapaxes(prediction.logits, 0, 1)
        _, mixed = jax.lax.scan(step, jnp.zeros_like(logits[0]), logits)
        return prediction.replace(mean=jnp.swapaxes(mixed, 0, 1))

    alone = overview.costs_of(model, SMALL)
    behind = overview.costs_of(model._replace(forward=forward), SMALL)
    assert behind.inside == alone.inside
    assert behind.weights_inside == alone.weights_inside
    assert behind.outside == alone.outside + 30 * 30


def test_at_the_sizes_of_the_paper():
    chosen = ("rnnsearch-star", "kvmematt-r2", "key-value-predict")
    config = dataclasses.replace(OverviewConfig(), systems=chosen)
    star, memory, misfit = overview.overview(config)
    assert star.costs is not None and star.costs.parameters == 53_982_512
    assert memory.costs is not None and memory.costs.parameters == 58_183_472
    assert misfit.costs is None and "3 parts" in misfit.misfit


def test_the_table_and_its_lines(rows):
    text = io.StringIO()
    Console(file=text, width=200).print(overview.table(list(rows.values()), SMALL))
    for name in SYSTEMS:
        assert f" {name} " in text.getvalue()
    assert "kv_memory, conditional(rounds=2)" in text.getvalue()


def test_the_command(capsys):
    cli.main(["systems", "--systems", "memdec", "mean-residual", "--json"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    named = [line["system"] for line in lines if "system" in line]
    assert named == ["memdec", "mean-residual"]
    assert lines[0]["decoder"] == "mem_dec"
    assert lines[1]["costs"]["parameters"] == 53_982_512


@pytest.mark.parametrize(
    "changes",
    [
        {"systems": ("memdeck",)},
        {"vocabulary": 0},
        {"source_length": 0},
        {"model": ModelConfig(cell="lstm")},  # which is each system's own
    ],
)
def test_mistakes_are_told(changes):
    with pytest.raises(UserError):
        overview.overview(dataclasses.replace(SMALL, **changes))
