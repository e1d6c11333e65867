# SPDX-License-Identifier: Apache-2.0
"""Who is told that a volume moves: nobody, unless the operator wants it."""
