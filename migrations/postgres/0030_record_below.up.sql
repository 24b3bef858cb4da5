-- The record of another coordinator's version that a participant named with its masked input; written with that input.
CREATE TABLE record_below (
    task        BYTEA   NOT NULL,                                     -- fixed
    number      BIGINT  NOT NULL,                                     -- fixed
    attempt     BIGINT  NOT NULL,                                     -- fixed
    participant BYTEA   NOT NULL,                                     -- fixed
    sha256      BYTEA   NOT NULL CHECK (length(sha256) = 32),         -- fixed; of the signed text
    PRIMARY KEY (task, number, attempt, participant),
    FOREIGN KEY (task, number, attempt, participant) REFERENCES assignment (task, number, attempt, participant)
);
