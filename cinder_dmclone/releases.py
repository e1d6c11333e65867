# SPDX-License-Identifier: Apache-2.0
"""What Cinder's releases name differently; nothing else knows of releases.

Database sessions, queries and tables were in ``cinder.db.sqlalchemy``, behind
a ``cinder.db.api`` without any, until Cinder 28 (2026.1).
"""

from __future__ import annotations

try:
    from cinder.db import models
except ImportError:
    from cinder.db.sqlalchemy import api as db_api
    from cinder.db.sqlalchemy import models
else:
    from cinder.db import api as db_api

__all__ = ['db_api', 'models']
