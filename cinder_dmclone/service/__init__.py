# SPDX-License-Identifier: Apache-2.0
"""Entry points: what Cinder and the other nodes call."""
