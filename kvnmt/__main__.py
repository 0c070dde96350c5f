# SPDX-License-Identifier: Apache-2.0
"""``python -m kvnmt`` is ``kvnmt``."""

from kvnmt.cli import main

if __name__ == "__main__":
    main()
