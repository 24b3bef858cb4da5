-- The record of another coordinator's version that a participant named with its masked input; written with that input.
CREATE TABLE record_below (
    task        BLOB    NOT NULL,                                     -- fixed
    number      INTEGER NOT NULL,                                     -- fixed
    attempt     INTEGER NOT NULL,                                     -- fixed
    participant BLOB    NOT NULL,                                     -- fixed
    sha256      BLOB    NOT NULL CHECK (length(sha256) = 32),         -- fixed; of the signed text
    PRIMARY KEY (task, number, attempt, participant),
    FOREIGN KEY (task, number, attempt, participant) REFERENCES assignment (task, number, attempt, participant)
) STRICT, WITHOUT ROWID;
