# SPDX-License-Identifier: Apache-2.0
"""Lines with more tokens than a model should be given: cut between words."""
