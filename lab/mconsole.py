# SPDX-License-Identifier: Apache-2.0
"""The management console of a user-mode-linux kernel."""
from __future__ import annotations

import os
import pathlib
import socket
import struct
import tempfile

from lab.errors import LabError

_MAGIC = 0xcafebabe
_REQUEST = struct.Struct('III512s')
_REPLY = struct.Struct('III512s')


def send(console: pathlib.Path, command: str, timeout: float = 30) -> str:
    """Give a command ("stop", "go", ...) and return the answer.

    Raises LabError if the kernel refuses or does not answer.
    """
    text = command.encode()
    # Below the lab's, which goes even if this process is killed.
    with (tempfile.TemporaryDirectory(dir=console.parent) as directory,
          socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client):
        client.settimeout(timeout)
        client.bind(os.path.join(directory, 'client'))
        client.sendto(_REQUEST.pack(_MAGIC, 2, len(text), text),
                      str(console))
        answer = b''
        more = 1
        while more:
            try:
                reply = client.recv(_REPLY.size)
            except TimeoutError:
                raise LabError(f'{console}: no answer to {command}') from None
            error, more, length, data = _REPLY.unpack(
                reply.ljust(_REPLY.size, b'\0'))
            answer += data[:length]
    message = answer.decode(errors='replace').strip('\0\n')
    if error:
        raise LabError(f'{console}: {command}: {message}')
    return message
