# SPDX-License-Identifier: Apache-2.0
"""Errors of the lab."""
from __future__ import annotations


class LabError(Exception):
    """Something the lab needs is missing or failed; the text is one line."""


class LabInUse(LabError):
    """Another process has the lab of that name."""


class CommandError(LabError):
    """A command ended with a status other than 0."""

    def __init__(self, command: str, code: int, output: str) -> None:
        super().__init__(
            f'{command}: exit status {code}: {output.strip()[-2000:]}')
        self.command = command
        self.code = code
        self.output = output
