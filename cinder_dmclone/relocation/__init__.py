# SPDX-License-Identifier: Apache-2.0
"""The protocols that give a volume another LV.

A volume goes to another node by this one; ``live_migration``, ``cut``,
``birth`` and ``revert`` say what is different for them::

    home node A                                node B
    -----------                                ------
    offer     CAS: the row names the copy
    lend      tag, flush, export
    prepare   ------------------------------>  build the copy, answer its path
    seal      no writer, flush
    commit    CAS: the row names B's LV
              - - - - - - - - - - - - - - - >  adopt, hydrate, finish

Up to the commit every failure is undone by *withdraw*: the row first, then
the rest. After it there is only forward, and nothing raises. A crash at any
point leaves what the reconciler finds and settles.
"""
