# SPDX-License-Identifier: Apache-2.0
"""The protocol that moves a volume, one module per actor."""
