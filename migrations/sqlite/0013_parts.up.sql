-- Masked inputs that arrive in parts.

CREATE TABLE upload (
    task         BLOB    NOT NULL,                                                     -- fixed
    number       INTEGER NOT NULL,                                                     -- fixed
    attempt      INTEGER NOT NULL,                                                     -- fixed
    participant  BLOB    NOT NULL,                                                     -- fixed
    root         BLOB    NOT NULL CHECK (length(root) = 32),                           -- fixed; digest of `tree`, which names the input
    bytes        INTEGER NOT NULL CHECK (bytes > 0),                                   -- fixed; size of the input
    tree         BLOB    NOT NULL,                                                     -- fixed; its size and the digests of its parts, as they are hashed
    whole        INTEGER NOT NULL CHECK (whole IN (0, 1)),                             -- 1 once all parts were judged together, and `tree` is a blob
    announced_at INTEGER NOT NULL,                                                     -- fixed
    PRIMARY KEY (task, number, attempt, participant),
    FOREIGN KEY (task, number, attempt, participant) REFERENCES assignment (task, number, attempt, participant)
) STRICT, WITHOUT ROWID;

-- A part that is stored.
CREATE TABLE upload_part (
    task        BLOB    NOT NULL,                                                      -- fixed
    number      INTEGER NOT NULL,                                                      -- fixed
    attempt     INTEGER NOT NULL,                                                      -- fixed
    participant BLOB    NOT NULL,                                                      -- fixed
    part        INTEGER NOT NULL CHECK (part >= 0),                                    -- fixed; its place in the input
    sha256      BLOB    NOT NULL CHECK (length(sha256) = 32),                          -- fixed; address of its blob
    PRIMARY KEY (task, number, attempt, participant, part),
    FOREIGN KEY (task, number, attempt, participant) REFERENCES upload (task, number, attempt, participant)
) STRICT, WITHOUT ROWID;
