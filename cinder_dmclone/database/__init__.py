# SPDX-License-Identifier: Apache-2.0
"""Cinder's tables, as far as the driver reads and writes them."""
