# SPDX-License-Identifier: Apache-2.0
"""Training: optimiser, sharded step, checkpoints, loop."""
