CREATE TABLE sign_in_of_tokens (
    id            BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    secret_sha256 BLOB    NOT NULL UNIQUE CHECK (length(secret_sha256) = 32),
    token         BLOB    NOT NULL REFERENCES operator_token (id),
    created_at    INTEGER NOT NULL,
    expires_at    INTEGER NOT NULL CHECK (expires_at > created_at),
    ended_at      INTEGER
) STRICT;

INSERT INTO sign_in_of_tokens
SELECT id, secret_sha256, token, created_at, expires_at, ended_at FROM sign_in WHERE token IS NOT NULL;

DROP TABLE sign_in;
ALTER TABLE sign_in_of_tokens RENAME TO sign_in;
CREATE INDEX sign_in_by_token ON sign_in (token, created_at);
