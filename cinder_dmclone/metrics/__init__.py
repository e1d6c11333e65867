# SPDX-License-Identifier: Apache-2.0
"""What a monitoring system is told of this node, when it asks.

Loaded only where the operator wants it: nothing is computed, counted or kept
for it in between.
"""
