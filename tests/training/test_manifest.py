# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint says of itself: its digest, its version, its score."""

import hashlib
import json
import logging

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from kvnmt import devices
from kvnmt.errors import UserError
from kvnmt.files import MANIFEST
from kvnmt.training.checkpoints.fingerprint import fingerprint
from kvnmt.training.checkpoints.folder import Keep
from kvnmt.training.checkpoints.writer import Checkpoints
from tests.training.saving import ABOUT, files, save_at, shorten, simple, small


def blake(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def test_checkpoints_of_versions_before_are_read(tmp_path):
    """They were sealed by another digest, of 32 digits."""
    save_at(tmp_path, 3, 4)
    for step in (3, 4):
        folder = tmp_path / str(step)
        plain = json.loads((folder / MANIFEST).read_text().split("\n", 1)[1])
        plain["files"] = {n: blake((folder / n).read_bytes()) for n in plain["files"]}
        text = json.dumps(plain, indent=1) + "\n"
        (folder / MANIFEST).write_text(f"{blake(text.encode())}\n{text}")
    told: list[str] = []
    with Checkpoints(tmp_path, read_only=True, tell=told.append) as checkpoints:
        assert checkpoints.find("last").step == 4
        shorten(tmp_path / "4" / "params" / "manifest.ocdbt")
        assert checkpoints.find("last").step == 3
        shorten(tmp_path / "3" / MANIFEST)
        with pytest.raises(UserError, match="has no checkpoint left that is whole"):
            checkpoints.find("last")
    assert "'params/manifest.ocdbt' was changed" in told[0]


def test_log_messages_of_others_are_shown(tmp_path, caplog):
    with Checkpoints(tmp_path):
        logging.getLogger("absl").error("of another")
        try:
            ocp.StandardCheckpointHandler().metadata(tmp_path / "nothing")
        except Exception:
            logging.getLogger("asyncio").exception("of orbax")
    assert [record.getMessage() for record in caplog.records] == ["of another"]


def test_the_content_has_one_digest_wherever_it_lies():
    state = simple()
    spread = devices.replicate(state, devices.data_mesh(2))
    assert fingerprint(state) == fingerprint(spread)
    assert fingerprint(state) != fingerprint(simple(2))


@pytest.mark.parametrize("place", [0, 5, 11])
def test_every_bit_counts_for_the_digest(place):
    bits = np.arange(12, dtype=np.uint32).reshape(3, 4)
    digest = fingerprint({"a": bits.view(np.float32)})
    for bit in range(32):
        other = bits.copy()
        other.flat[place] ^= np.uint32(1 << bit)
        assert fingerprint({"a": other.view(np.float32)}) != digest
    assert fingerprint({"a": bits.view(np.float32).T}) != digest
    assert fingerprint({"b": bits.view(np.float32)}) != digest


def test_a_manifest_says_what_it_is_of(tmp_path):
    save_at(tmp_path, 3)
    _, text = (tmp_path / "3" / MANIFEST).read_text().split("\n", 1)
    found = json.loads(text)
    assert found["about"] == ABOUT and found["score"] == 0.3
    assert set(found["files"]) == set(files(tmp_path / "3")) - {MANIFEST}


def test_a_score_that_is_no_number_is_the_worst(tmp_path):
    save_at(tmp_path, 1, 2, rate=False, made=small)
    with Checkpoints(tmp_path, keep=Keep(1)) as checkpoints:
        checkpoints.rate(1, -2.0, {})
        checkpoints.rate(2, float("nan"), {})
        assert checkpoints.folder.best_steps(1) == [1]
        assert checkpoints.folder.steps() == [1, 2]


def test_a_field_that_holds_no_array_does_not_count(tmp_path):
    """A class may gain or lose one; its checkpoints stay what they are."""
    arrays = {"W": jnp.arange(6.0).reshape(2, 3), "b": (jnp.ones(3), jnp.zeros(2))}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save_params(arrays | {"gone": None}, {})
    with Checkpoints(tmp_path, read_only=True) as checkpoints:
        like = arrays | {"new": None}
        step = checkpoints.find("best").step
        found = checkpoints.restore_params(like, step)
        assert found["new"] is None and "gone" not in found
        jax.tree.map(np.testing.assert_array_equal, found, like)
        for other, name in (
            (arrays | {"more": jnp.ones(1)}, "lacks 'more'"),
            ({"W": arrays["W"]}, "holds 'b/0'"),
        ):
            with pytest.raises(UserError, match=name):
                checkpoints.restore_params(other, step)
