# SPDX-License-Identifier: Apache-2.0
"""What rows of several experiments are made of: text, settings, systems, measures."""
