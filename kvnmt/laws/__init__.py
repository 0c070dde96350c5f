# SPDX-License-Identifier: Apache-2.0
"""What every attention promises, tried on small random numbers."""
