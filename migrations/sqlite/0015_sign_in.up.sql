-- Operators that signed in with a browser: a cookie in place of the token.

CREATE TABLE sign_in (
    id            BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),                -- fixed
    secret_sha256 BLOB    NOT NULL UNIQUE CHECK (length(secret_sha256) = 32),          -- fixed; the secret itself is in the cookie alone
    token         BLOB    NOT NULL REFERENCES operator_token (id),                     -- fixed; whose role it has, as that is now
    created_at    INTEGER NOT NULL,                                                    -- fixed
    expires_at    INTEGER NOT NULL CHECK (expires_at > created_at),                    -- fixed; from then on it counts no more
    ended_at      INTEGER                                                              -- set once: signed out
) STRICT;

CREATE INDEX sign_in_by_token ON sign_in (token, created_at);
