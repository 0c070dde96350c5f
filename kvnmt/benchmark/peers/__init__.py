# SPDX-License-Identifier: Apache-2.0
"""Other programs that train and translate, by name: one file and one line each."""

from kvnmt.benchmark.peers import joeynmt, opennmt
from kvnmt.benchmark.peers.base import Program

PEERS: dict[str, Program] = {
    "joeynmt": joeynmt.PROGRAM,
    "opennmt": opennmt.PROGRAM,
}
