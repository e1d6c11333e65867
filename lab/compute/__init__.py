# SPDX-License-Identifier: Apache-2.0
"""Nova in the lab: real servers in the nodes.

    with Lab('demo', nova=True) as lab:
        root = lab.create_root(node=1)
        server = lab.create_server(root, node=1)
        lab.live_migrate(server, node=2)
        print(lab.console(server))

nova-api, nova-conductor, nova-scheduler and Placement run on the machine
itself, beside Cinder and Glance; a stub answers for Neutron, so servers have
no network.
Each node runs libvirtd, QEMU without KVM and nova-compute
(``node.compute``).
"""
