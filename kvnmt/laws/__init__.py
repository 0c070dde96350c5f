# SPDX-License-Identifier: Apache-2.0
"""What every mechanism promises, tried on small random numbers."""
