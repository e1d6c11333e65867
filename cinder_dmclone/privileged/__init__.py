# SPDX-License-Identifier: Apache-2.0
"""The only code that runs as root: one function per verb."""

from __future__ import annotations

import functools
import threading
import time
import typing

from oslo_config import cfg
from oslo_privsep import capabilities

from cinder_dmclone import exceptions
from cinder_dmclone.privileged import helper

SECTION = 'cinder_dmclone_privileged'

# Commands that we run get all capabilities of root back when they start. The
# daemon itself only works on files of root, with two exceptions: LIO wants
# CAP_SYS_ADMIN for CHAP (iscsi_target_configfs.c), and this code may lie where
# only the service's user can read.
CAPABILITIES = [capabilities.CAP_SYS_ADMIN,
                capabilities.CAP_DAC_READ_SEARCH]

context = helper.Context(
    'cinder_dmclone', cfg_section=SECTION, pypath=f'{__name__}.context',
    capabilities=CAPABILITIES)

# One thread per CPU is privsep's default. Ours wait rather than compute: for
# a login to a lender that is away, 11 s, or for a command that is stuck in
# the kernel. Those that wait for another node leave some to the rest, which
# so never waits for them. (A second daemon would do that too, for 40 MB more
# beside each backend, and a rule for rootwrap.)
THREADS = 24
ABROAD = 16
cfg.CONF.set_default('thread_pool_size', THREADS, group=SECTION)

_turns = threading.BoundedSemaphore(ABROAD)

_Function = typing.Callable[..., typing.Any]


@context.entrypoint
def ready() -> None:
    """Nothing, when the daemon has started; that may take long."""


def timely(seconds: float, begun: float,
           abroad: bool = False) -> typing.Callable[[_Function], _Function]:
    """An entrypoint that is not carried out after its caller has given up.

    The daemon begins a call when it has a thread for it, which nothing
    bounds: what was decided before would be done after what was decided
    since. Both processes have the same monotonic clock.

    Calls raise NotBegun and CommandTimeout beside what they raise themselves.

    :param seconds: how long the caller waits
    :param begun: within how many of these it has to begin
    :param abroad: whether it waits for another node; its turn then comes
        before ``seconds`` are counted, within ``begun``
    """
    def wrap(function: _Function) -> _Function:
        remote = context.entrypoint_with_timeout(seconds)(function)

        def late() -> exceptions.NotBegun:
            return exceptions.NotBegun(command=function.__name__,
                                       seconds=begun)

        def ask(*arguments: typing.Any, **named: typing.Any) -> typing.Any:
            # While it starts nothing is decided that a call could be late for.
            context.running()
            return remote(*arguments, **named,
                          latest=time.monotonic() + begun)

        # The daemon finds this by its name, as the entrypoint.
        @functools.wraps(remote)
        def call(*arguments: typing.Any, latest: float | None = None,
                 **named: typing.Any) -> typing.Any:
            if not context.client_mode:
                if latest is not None and time.monotonic() > latest:
                    raise late()
                return remote(*arguments, **named)
            if not abroad:
                return ask(*arguments, **named)
            if not _turns.acquire(timeout=begun):
                raise late()
            try:
                return ask(*arguments, **named)
            finally:
                _turns.release()
        return call
    return wrap
