# SPDX-License-Identifier: Apache-2.0
"""A storage cloud in a box: real kernels, real Cinder, no machine needed."""
