# SPDX-License-Identifier: Apache-2.0
"""Runs that answer over HTTP: the explorer, live, and questions of scripts."""
