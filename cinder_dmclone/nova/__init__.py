# SPDX-License-Identifier: Apache-2.0
"""What nova-scheduler loads: servers go where their volumes fit.

It is installed where Nova is, so it imports nothing of Cinder and nothing of
the rest of this package. Only ``api``, ``filters`` and ``weights`` need
Nova.
"""
