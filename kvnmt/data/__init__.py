# SPDX-License-Identifier: Apache-2.0
"""Sentences, vocabularies, batches, and a language made up for experiments."""
