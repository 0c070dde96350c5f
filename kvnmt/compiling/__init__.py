# SPDX-License-Identifier: Apache-2.0
"""Programs compiled for devices that need not be there, and what they tell."""
