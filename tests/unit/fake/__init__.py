# SPDX-License-Identifier: Apache-2.0
"""A cloud of a few nodes in memory: every port of the driver, faked.

The fakes keep what a real crash keeps and lose what it loses, and complain
(``Cloud.complaints``) about what a kernel would punish: a removal that hangs,
a silently formatted clone.
"""
