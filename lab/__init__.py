# SPDX-License-Identifier: Apache-2.0
"""A storage cloud in a box: real kernels, real Cinder, no machine needed."""
from lab.errors import CommandError, LabError
from lab.lab import FAULTY_DRIVER, Lab
from lab.rest import RestError

__all__ = ['FAULTY_DRIVER', 'CommandError', 'Lab', 'LabError', 'RestError']
