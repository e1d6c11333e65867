# SPDX-License-Identifier: Apache-2.0
"""What a monitoring system is told of this node, when it asks.

Loaded only where the operator wants it. In between nothing is computed, and
nothing counted but moves that end.
"""
