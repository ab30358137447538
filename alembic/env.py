"""Runs the migrations on the connection that :mod:`stores.sql.migrate` hands over.

Alembic's own command works too, where an ``alembic.ini`` names this folder as ``script_location`` and the database as
``sqlalchemy.url``.
"""

from __future__ import annotations

from alembic import context

from stores.sql import migrate

handed_over = context.config.attributes.get("connection")
url = context.config.get_main_option("sqlalchemy.url")

if context.is_offline_mode():
    context.configure(url=url, **migrate.SETTINGS)
    with context.begin_transaction():
        context.run_migrations()
elif handed_over is not None:
    context.configure(connection=handed_over, **migrate.SETTINGS)
    context.run_migrations()
else:
    with migrate.alone(url or "") as connection:
        context.configure(connection=connection, **migrate.SETTINGS)
        context.run_migrations()
