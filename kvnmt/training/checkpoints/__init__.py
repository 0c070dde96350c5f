# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a training: written, sealed with a manifest, checked when read."""
