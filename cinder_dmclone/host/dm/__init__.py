# SPDX-License-Identifier: Apache-2.0
"""The device mapper: tables and statuses as values, and the thin door."""
