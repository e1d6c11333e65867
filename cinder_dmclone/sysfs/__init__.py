# SPDX-License-Identifier: Apache-2.0
"""What any user may read of the kernel."""
