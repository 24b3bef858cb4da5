-- Masked inputs that arrive in parts.

CREATE TABLE upload (
    task         BYTEA   NOT NULL,                                                     -- fixed
    number       BIGINT  NOT NULL,                                                     -- fixed
    attempt      BIGINT  NOT NULL,                                                     -- fixed
    participant  BYTEA   NOT NULL,                                                     -- fixed
    root         BYTEA   NOT NULL CHECK (length(root) = 32),                           -- fixed; digest of `tree`, which names the input
    bytes        BIGINT  NOT NULL CHECK (bytes > 0),                                   -- fixed; size of the input
    tree         BYTEA   NOT NULL,                                                     -- fixed; its size and the digests of its parts, as they are hashed
    whole        BIGINT  NOT NULL CHECK (whole IN (0, 1)),                             -- 1 once all parts were judged together, and `tree` is a blob
    announced_at BIGINT  NOT NULL,                                                     -- fixed
    PRIMARY KEY (task, number, attempt, participant),
    FOREIGN KEY (task, number, attempt, participant) REFERENCES assignment (task, number, attempt, participant)
);

-- A part that is stored.
CREATE TABLE upload_part (
    task        BYTEA   NOT NULL,                                                      -- fixed
    number      BIGINT  NOT NULL,                                                      -- fixed
    attempt     BIGINT  NOT NULL,                                                      -- fixed
    participant BYTEA   NOT NULL,                                                      -- fixed
    part        BIGINT  NOT NULL CHECK (part >= 0),                                    -- fixed; its place in the input
    sha256      BYTEA   NOT NULL CHECK (length(sha256) = 32),                          -- fixed; address of its blob
    PRIMARY KEY (task, number, attempt, participant, part),
    FOREIGN KEY (task, number, attempt, participant) REFERENCES upload (task, number, attempt, participant)
);
