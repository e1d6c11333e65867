# SPDX-License-Identifier: Apache-2.0
"""A stock Debian as a node: what user-mode-linux has not.

The kernel is Debian's own, under QEMU without KVM, with two processors, and
beside the driver runs what other people's nodes have: systemd, udev with all
its rules, multipathd, udisks, bcache, LVM with its defaults. dm-clone is built
by DKMS as an operator does it (``dkms``). It is slow: for few long tests.
"""
