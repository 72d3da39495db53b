-- API tokens. Only their hash is kept.
CREATE TABLE web_token (
    id         TEXT    PRIMARY KEY,
    name       TEXT    NOT NULL,
    hash       BLOB    NOT NULL UNIQUE,
    scopes     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT    NOT NULL,
    expires_at INTEGER,
    used_at    INTEGER,
    revoked_at INTEGER
) STRICT;

CREATE INDEX web_token_by_age ON web_token (created_at, id);

-- Sessions of the console: what was signed in with, NULL for the admin token of the configuration.
CREATE TABLE web_session (
    hash       BLOB    PRIMARY KEY,
    token      TEXT    REFERENCES web_token (id) ON DELETE CASCADE,
    admin_hash BLOB,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;

CREATE INDEX web_session_by_expiry ON web_session (expires_at);
CREATE INDEX web_session_by_token ON web_session (token);

-- Who did what.
CREATE TABLE web_audit (
    id     TEXT    PRIMARY KEY,
    at     INTEGER NOT NULL,
    who    TEXT    NOT NULL,
    what   TEXT    NOT NULL,
    detail TEXT    NOT NULL
) STRICT;

CREATE INDEX web_audit_by_age ON web_audit (at, id);
