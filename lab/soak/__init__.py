# SPDX-License-Identifier: Apache-2.0
"""tools/soak: whatever may be done to volumes, for hours, with faults.

``choice`` says what comes next: from a seed and from ``model``, which knows
what there is and what each volume has to hold; ``refusals`` knows which
requests Cinder has to refuse. ``actor`` does a step in a lab, by ``requests``,
while ``outages`` takes something away; ``growth`` watches the services, and
``engine`` goes on until the time is over, then looks at all there is, deletes
it, and looks for what is left.
"""
