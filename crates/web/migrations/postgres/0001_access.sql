-- API tokens. Only their hash is kept.
CREATE TABLE web_token (
    id         TEXT   COLLATE "C" PRIMARY KEY,
    name       TEXT   NOT NULL,
    hash       BYTEA  NOT NULL UNIQUE,
    scopes     TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    created_by TEXT   NOT NULL,
    expires_at BIGINT,
    used_at    BIGINT,
    revoked_at BIGINT
);

CREATE INDEX web_token_by_age ON web_token (created_at, id);

-- Sessions of the console: what was signed in with, NULL for the admin token of the configuration.
CREATE TABLE web_session (
    hash       BYTEA  PRIMARY KEY,
    token      TEXT   COLLATE "C" REFERENCES web_token (id) ON DELETE CASCADE,
    admin_hash BYTEA,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);

CREATE INDEX web_session_by_expiry ON web_session (expires_at);
CREATE INDEX web_session_by_token ON web_session (token);

-- Who did what.
CREATE TABLE web_audit (
    id     TEXT   COLLATE "C" PRIMARY KEY,
    at     BIGINT NOT NULL,
    who    TEXT   NOT NULL,
    what   TEXT   NOT NULL,
    detail TEXT   NOT NULL
);

CREATE INDEX web_audit_by_age ON web_audit (at, id);
