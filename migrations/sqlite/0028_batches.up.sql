-- Fixed batches of participants, whose updates are only opened together (secure_agg::batch).

-- A draw that divides participants into batches.
CREATE TABLE batch_draw (
    id          BLOB NOT NULL PRIMARY KEY,                      -- fixed
    task        BLOB NOT NULL REFERENCES task (id),                    -- fixed; whose participants are drawn
    size        INTEGER NOT NULL CHECK (size >= 3),                -- fixed; members of each batch
    opened_at   INTEGER NOT NULL,                                  -- fixed
    deadline_at INTEGER NOT NULL,                                  -- of the offers, then of the reveals
    pool        BLOB,                                           -- the offers among which batches are drawn; NULL: not fixed yet
    drawn       BLOB,                                           -- every nonce; NULL: not all revealed
    failed      INTEGER NOT NULL DEFAULT 0 CHECK (failed IN (0, 1))
) STRICT;

-- A participant's part in a draw. Kept, so that it can fetch the result later.
CREATE TABLE batch_offer (
    draw        BLOB NOT NULL REFERENCES batch_draw (id),       -- fixed
    participant BLOB NOT NULL REFERENCES participant (id),      -- fixed
    offered_at  INTEGER NOT NULL,                                  -- when it was last repeated
    offer       BLOB NOT NULL,                                  -- as it was sent; fixed once the pool is
    reveal      BLOB,                                           -- as it was sent
    PRIMARY KEY (draw, participant)
) STRICT;

-- The batch that a member of a cohort has stated with its keys. Participants without a batch have no row.
CREATE TABLE assignment_batch (
    task        BLOB NOT NULL,                                  -- fixed
    number      INTEGER NOT NULL,                                  -- fixed
    attempt     INTEGER NOT NULL,                                  -- fixed
    participant BLOB NOT NULL,                                  -- fixed
    batch       BLOB NOT NULL,                                  -- fixed
    PRIMARY KEY (task, number, attempt, participant),
    FOREIGN KEY (task, number, attempt, participant) REFERENCES assignment (task, number, attempt, participant)
) STRICT;

-- The batch that a participant reports with its check-in; NULL: it has none. Not proven, unlike the one that it states with its keys.
ALTER TABLE check_in ADD COLUMN batch BLOB  CHECK (length(batch) = 32);
