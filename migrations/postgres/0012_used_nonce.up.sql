-- What signed requests have used once, so that no coordinator takes any of them again.

CREATE TABLE used_nonce (
    digest     BYTEA   NOT NULL PRIMARY KEY CHECK (length(digest) = 32),                      -- fixed; SHA-256 of certificate and nonce
    expires_at BIGINT  NOT NULL                                                               -- fixed; from then on its date refuses the request
);
