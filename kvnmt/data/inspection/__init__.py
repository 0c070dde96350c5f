# SPDX-License-Identifier: Apache-2.0
"""Is this text fit to train on?"""
