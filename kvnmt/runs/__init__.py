# SPDX-License-Identifier: Apache-2.0
"""Run directories: their config, how they are made, read back and averaged."""
