# SPDX-License-Identifier: Apache-2.0
"""The product's own code in a deterministic simulator.

Nodes, rows, LVM, the device mapper, exports, sessions and messages are
models (most of them those of the unit tests) that keep what a crash keeps
and lose what it loses. ``python -m tests.simulation --help`` runs it.
"""
