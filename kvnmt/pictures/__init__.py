# SPDX-License-Identifier: Apache-2.0
"""Pictures and pages for people: heatmaps, charts, the explorer."""
