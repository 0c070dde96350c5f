# SPDX-License-Identifier: Apache-2.0
"""What holds for every system, tested on all that the catalogues list."""
