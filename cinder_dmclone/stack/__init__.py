# SPDX-License-Identifier: Apache-2.0
r"""The devices of one volume on this node; no database, no other node.

::

      front  loan  serve  view  io     consumers: a dm linear each
        \      \     |     /    /
         +------ top ------+           the data LV, or the clone while
                  |                    hydrating
                clone -- metadata LV, data LV
                  |
                source                 dm multipath that queues without a path
                  |
             imported disk

Every function is idempotent: it compares with what is there and does what is
missing.
"""
