# SPDX-License-Identifier: Apache-2.0
"""Who is told that something moves: nobody, unless the operator wants it."""
