# SPDX-License-Identifier: Apache-2.0
"""The other nodes of the backend."""
