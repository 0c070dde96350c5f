# SPDX-License-Identifier: Apache-2.0
"""How processes find each other and their devices, and what is told if they do not."""

import os
import signal
import socket
import subprocess
import sys
from typing import Any

import jax
import pytest

from kvnmt import companions
from kvnmt.errors import UserError
from tests.training.ports import free_port


@pytest.mark.parametrize("place", ["node0", "node0:http", "node0:70000", ":1234"])
def test_where_no_process_can_be_found_is_told(place):
    with pytest.raises(UserError, match="give HOST:PORT"):
        companions.join(place, 2, 1)


def test_an_unknown_host_is_told_at_once(monkeypatch):
    def unknown(*place):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(UserError, match="'node0' .* not known here .Name or service"):
        companions.join("node0:1234", 2, 0)
    with pytest.raises(UserError, match="'a..b' .* not known here"):
        monkeypatch.undo()
        companions.join("a..b:1234", 2, 1)


def test_a_host_may_be_known_a_little_later(monkeypatch, capsys):
    """As that of the first process, which its name comes with."""
    tries = [socket.gaierror(-2, "not yet"), socket.gaierror(-2, "not yet")]

    def later(*place):
        if tries:
            raise tries.pop()

    monkeypatch.setattr(socket, "getaddrinfo", later)
    monkeypatch.setattr(companions.time, "sleep", lambda seconds: None)
    companions._find("node0", 60)
    assert not tries
    waiting = "'node0' of --coordinator is not known yet; waiting for it\n"
    assert capsys.readouterr().err == waiting  # once


def test_processes_that_do_not_all_come_are_told():
    """JAX by itself aborts, with no sentence."""
    code = (
        "from kvnmt import companions; companions.WAIT = 1; companions.join(%r, 2, 1)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code % f"localhost:{free_port()}"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("not all processes came within 1 s")


def test_a_port_in_use_is_told():
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port} .* Address already in use"):
            companions.join(f"localhost:{port}", 2, 0)


# JAX alone would give each process one device, and take the signal that ends it.
JOINED = """
import jax, os, signal
from kvnmt import companions
companions.join()
print(jax.config.values["jax_cuda_visible_devices"], flush=True)
os.kill(os.getpid(), signal.SIGTERM)
signal.pause()
"""
SLURM = {
    "SLURM_JOB_ID": "1",
    "SLURM_NTASKS": "1",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_NODELIST": "localhost",
    "SLURM_JOB_NODELIST": "localhost",
}


@pytest.mark.parametrize("tasks, visible", [("1(x2)", "all"), ("8", "0")])
def test_a_process_takes_its_devices_and_still_ends_when_asked(tasks, visible):
    """All devices where it is alone on its machine."""
    env = os.environ | SLURM | {"SLURM_STEP_TASKS_PER_NODE": tasks}
    env["JAX_COORDINATOR_PORT"] = str(free_port())
    run = subprocess.run(
        [sys.executable, "-c", JOINED], env=env, capture_output=True, text=True
    )
    assert run.stdout == f"{visible}\n", run.stderr
    assert run.returncode == -signal.SIGTERM


def test_a_process_takes_all_devices_where_it_is_alone_or_told_its_place(monkeypatch):
    for name in ("CUDA_VISIBLE_DEVICES", "JAX_LOCAL_DEVICE_IDS"):
        monkeypatch.delenv(name, raising=False)
    for tasks, numbers in (("1(x2)", []), ("1(x2),2", None), ("8", None)):
        monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", tasks)
        assert companions._own_devices(by_hand=False) == numbers
    joined: dict[str, Any] = {}

    def initialize(*place: object, **given: object) -> None:
        joined.update(given)

    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    companions.join(f"localhost:{free_port()}", 1, 0)
    assert joined["local_device_ids"] == []
    # Where they meet alone says nothing of its place: SLURM does, of eight.
    companions.join(f"localhost:{free_port()}")
    assert joined["local_device_ids"] is None


def test_a_process_that_is_shown_one_gpu_takes_it(monkeypatch):
    """It has number 0 there, whatever number the process has on its machine."""
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", "4(x2)")
    for shown, numbers in (("2", [0]), ("0,1,2,3", None), ("", None)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
        assert companions._own_devices(by_hand=False) == numbers
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    monkeypatch.setenv("JAX_LOCAL_DEVICE_IDS", "1")
    assert companions._own_devices(by_hand=False) is None
