# SPDX-License-Identifier: Apache-2.0
"""Bringing what this node has into line with what the rows say."""
