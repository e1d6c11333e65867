# SPDX-License-Identifier: Apache-2.0
"""The map of the house, from the roof to the ground.

A module imports from its own floor and from those below, never from above
and never in a circle (``tests/unit/test_layers.py`` reads this map)::

    9 driver          Cinder's face
    9 cli             what an operator does on a node by hand
    9 wiring          from cinder.conf to what the code works on
    9 opts            the options of cinder.conf
    9 preflight       what this node lacks
    9 weights         what cinder-scheduler loads
    9 nova            what nova-scheduler loads, where nothing else of this is

    8 service         what Cinder and the other nodes call
    8 metrics         what Prometheus is told of this node
    7 reconcile       brings what is here into line with what the rows say
    6 relocation      the protocols that give a volume another LV

    5 world           all that is outside of the protocol's own logic
    4 peers           the other nodes: what is said, and how
    4 database        the rows: read whole, changed by compare-and-swap only
    4 locks           one lock per volume and node, one per backend
    4 events          who is told that a volume or a snapshot moves

    3 stack           the devices of one volume on this node
    2 ports           what the code below may touch: this node alone
    1 host            this node's kernel and daemons
    1 privileged      all that runs as root

    0 sysfs           what any user may read of the kernel
    0 location        where an LV is; identifiers
    0 marks           what a port says of its own calls
    0 names           names of everything that is made
    0 courses         how a clone is to hydrate, and what comes of it
    0 units           sizes that know what they count
    0 deadlines       how long a call may take, and who waits for whom
    0 settings        what the operator chose
    0 releases        what Cinder's releases name differently
    0 exceptions      errors, and what to do about them
    0 version         which release this is
    0 files           what the systems of a node read of ours, and where

Which question which module answers: ``doc/source/contributor/code.rst``.
"""
