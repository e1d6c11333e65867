# SPDX-License-Identifier: Apache-2.0
"""How a data LV gets its tags: in one change of LVM, and durably."""

from __future__ import annotations

import typing

from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone.ports import Host
from cinder_dmclone.stack import lv_tags

Tags = typing.Iterable[lv_tags.Tag | None]


def write(host: Host, lv: LvUuid, add: Tags = (), remove: Tags = ()) -> None:
    """Write down durably what an LV says of itself from now on.

    What is there already, or is not any more, is no mistake: whoever was
    interrupted does it again.

    :raises CommandFailed: if there is no such LV; nothing was changed
    """
    host.group.retag(names.data_lv(lv), add=_printed(add),
                     remove=_printed(remove))
    host.group.flush()


def _printed(tags: Tags) -> list[str]:
    return [lv_tags.print_tag(tag) for tag in tags if tag]
