-- What differential privacy must not forget: what was spent, who was drawn, what the noise is made from.

-- Clipping norm of the rounds that start from this version: finite, above 0, in the unit of the parameters. Fixed; NULL if
-- the task has no privacy mechanism.
ALTER TABLE model_version ADD COLUMN clip DOUBLE PRECISION CHECK (clip > 0 AND clip < 'Infinity');

-- What a release cost, or an attempt that failed when its sum may have been opened. Rows are only added.
CREATE TABLE privacy_ledger (
    task       BYTEA   NOT NULL,                                                       -- fixed
    idx        BIGINT  NOT NULL CHECK (idx >= 0),                                      -- fixed; counts within the task, no gaps
    number     BIGINT  NOT NULL,                                                       -- fixed; the round that is charged
    attempt    BIGINT  NOT NULL,                                                       -- fixed; the attempt that is charged
    published  BIGINT  NOT NULL CHECK (published IN (0, 1)),                           -- fixed; 0: charged although it failed
    created_at BIGINT  NOT NULL,                                                       -- fixed; when it was charged
    row        TEXT    NOT NULL CHECK (json_valid(row)),                               -- fixed; sealed row of the ledger, JSON
    PRIMARY KEY (task, idx),
    UNIQUE (task, number, attempt),
    FOREIGN KEY (task, number, attempt) REFERENCES round (task, number, attempt)
);

-- Where a task's ledger ends, so that rows missing at its end are noticed.
CREATE TABLE privacy_head (
    task BYTEA NOT NULL PRIMARY KEY REFERENCES task (id),                              -- fixed
    seal TEXT NOT NULL CHECK (length(seal) BETWEEN 1 AND 128)                          -- of the newest row; changes with each
);

-- Who was drawn for an attempt before anybody looked at who is available. Rows go when the attempt needs them no more.
CREATE TABLE sampled (
    task        BYTEA   NOT NULL,                                                      -- fixed
    number      BIGINT  NOT NULL,                                                      -- fixed
    attempt     BIGINT  NOT NULL,                                                      -- fixed
    participant BYTEA   NOT NULL REFERENCES participant (id),                          -- fixed
    PRIMARY KEY (task, number, attempt, participant),
    FOREIGN KEY (task, number, attempt) REFERENCES round (task, number, attempt)
);
-- The population that is drawn from, in the order in which the draw counts it.
CREATE INDEX participant_enrolled ON participant (enrolled_at, id) WHERE revoked_at IS NULL;

-- A seed of noise, drawn once and then the same after every crash. Overwritten when it is forgotten.
CREATE TABLE secret (
    task    BYTEA   NOT NULL REFERENCES task (id),                                     -- fixed
    number  BIGINT  NOT NULL CHECK (number >= 0),                                      -- fixed; the round; 0: the whole task
    attempt BIGINT  NOT NULL CHECK (attempt >= 0),                                     -- fixed; its attempt; 0: not of one attempt
    purpose TEXT    NOT NULL CHECK (length(purpose) BETWEEN 1 AND 64),                 -- fixed; what it is for
    sealed  BYTEA   NOT NULL CHECK (length(sealed) BETWEEN 1 AND 4096),                -- fixed; encrypted with a key kept elsewhere
    PRIMARY KEY (task, number, attempt, purpose)
);
