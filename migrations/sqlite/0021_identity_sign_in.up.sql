-- Operators who signed in by the identity provider: there is no token that the cookie stands for.

CREATE TABLE sign_in_of_either (
    id             BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),               -- fixed
    secret_sha256  BLOB    NOT NULL UNIQUE CHECK (length(secret_sha256) = 32),         -- fixed; the secret itself is in the cookie alone
    token          BLOB    REFERENCES operator_token (id),                             -- fixed; whose role it has, as that is now; NULL: an identity's
    issuer         TEXT,                                                               -- fixed; the provider that vouched; NULL: a token's
    subject_sha256 BLOB    CHECK (length(subject_sha256) = 32),                        -- fixed; of issuer, line feed and `sub`; NULL: a token's
    claim_values   TEXT,                                                               -- fixed; JSON list of what the provider said that counted here
    created_at     INTEGER NOT NULL,                                                   -- fixed
    expires_at     INTEGER NOT NULL CHECK (expires_at > created_at),                   -- fixed; from then on it counts no more
    ended_at       INTEGER,                                                            -- set once: signed out
    CHECK ((token IS NULL) <> (issuer IS NULL)),
    CHECK ((issuer IS NULL) = (subject_sha256 IS NULL) AND (issuer IS NULL) = (claim_values IS NULL))
) STRICT;

INSERT INTO sign_in_of_either (id, secret_sha256, token, created_at, expires_at, ended_at)
SELECT id, secret_sha256, token, created_at, expires_at, ended_at FROM sign_in;

DROP TABLE sign_in;
ALTER TABLE sign_in_of_either RENAME TO sign_in;
CREATE INDEX sign_in_by_token ON sign_in (token, created_at);
CREATE INDEX sign_in_by_subject ON sign_in (subject_sha256, created_at);
