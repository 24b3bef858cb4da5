-- Blobs that garbage collection removes, so that no transaction names one of them meanwhile.

CREATE TABLE doomed (
    digest       BYTEA   NOT NULL PRIMARY KEY CHECK (length(digest) = 32),                    -- fixed; SHA-256
    doomed_at    BIGINT  NOT NULL,                                                            -- when no row named it
    collected_at BIGINT  CHECK (collected_at IS NULL OR collected_at >= 0)                    -- NULL: it may be removed at any moment; then:
                                                                                              -- since when nobody removes it any more
);
