# SPDX-License-Identifier: Apache-2.0
"""How fast systems train and translate here: beside each other, beside what was."""
