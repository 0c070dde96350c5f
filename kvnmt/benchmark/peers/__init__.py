# SPDX-License-Identifier: Apache-2.0
"""Other programs that train and translate, by name: a file and a line for each.

The type of `AgainstConfig.against` has the names, too: it is what help shows.
"""

from kvnmt.benchmark.peers import joeynmt, opennmt
from kvnmt.benchmark.peers.base import Program

PEERS: dict[str, Program] = {
    "joeynmt": joeynmt.PROGRAM,
    "opennmt": opennmt.PROGRAM,
}
