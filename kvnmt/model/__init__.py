# SPDX-License-Identifier: Apache-2.0
"""The model: what it is made of, what is trained, how that starts, and its functions.

`config` holds the choices, `arrays` what is trained, constant and carried, `init` how
the parameters start, `contract` what every model offers, and `assembly` builds one.
"""
