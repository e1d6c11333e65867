# SPDX-License-Identifier: Apache-2.0
"""This node's kernel and daemons, each behind one object."""
