# SPDX-License-Identifier: Apache-2.0
"""The only code that runs as root: one function per verb."""

from __future__ import annotations

from oslo_config import cfg
from oslo_privsep import capabilities
from oslo_privsep import priv_context

_SECTION = 'cinder_dmclone_privileged'

context = priv_context.PrivContext(
    'cinder_dmclone',
    cfg_section=_SECTION,
    pypath=f'{__name__}.context',
    # Commands that we run get all capabilities of root back when they start.
    # The daemon itself only works on files of root, with two exceptions: LIO
    # wants CAP_SYS_ADMIN for CHAP (iscsi_target_configfs.c), and this code
    # may lie where only the service's user can read.
    capabilities=[capabilities.CAP_SYS_ADMIN,
                  capabilities.CAP_DAC_READ_SEARCH])

# One thread per CPU is privsep's default. Ours wait rather than compute: for
# a login to a lender that is away, 11 s, or for a command that is stuck in
# the kernel, and must not keep all others waiting.
cfg.CONF.set_default('thread_pool_size', 16, group=_SECTION)
