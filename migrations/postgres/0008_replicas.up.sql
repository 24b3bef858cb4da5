-- What several coordinators over one database must know of each other.

-- Grows whenever the lease is taken or released: what was written under an older one is refused.
ALTER TABLE lease ADD COLUMN token BIGINT NOT NULL DEFAULT 0 CHECK (token >= 0);

-- What a participant says with its check-in, for the worker that draws it and for operators; NULL: nothing.
ALTER TABLE check_in ADD COLUMN round_trip_ms BIGINT CHECK (round_trip_ms >= 0);       -- of its connection, in milliseconds
ALTER TABLE check_in ADD COLUMN sent_round BIGINT CHECK (sent_round >= 0);             -- it has sent an input for this round, and
                                                                                       -- declines the next one for that reason

-- Of what every process that uses the database must have in common, such as keys. The first one stays.
CREATE TABLE fingerprint (
    what   TEXT  COLLATE "C" NOT NULL PRIMARY KEY,                                     -- for people
    sha256 BYTEA NOT NULL CHECK (length(sha256) = 32)                                  -- fixed
);
