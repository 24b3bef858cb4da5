-- Fixed batches of participants, whose updates are only opened together (secure_agg::batch).

-- A draw that divides participants into batches.
CREATE TABLE batch_draw (
    id          BYTEA NOT NULL PRIMARY KEY,                      -- fixed
    task        BYTEA NOT NULL REFERENCES task (id),                    -- fixed; whose participants are drawn
    size        BIGINT NOT NULL CHECK (size >= 3),                -- fixed; members of each batch
    opened_at   BIGINT NOT NULL,                                  -- fixed
    deadline_at BIGINT NOT NULL,                                  -- of the offers, then of the reveals
    pool        BYTEA,                                           -- the offers among which batches are drawn; NULL: not fixed yet
    drawn       BYTEA,                                           -- every nonce; NULL: not all revealed
    failed      BIGINT  NOT NULL DEFAULT 0 CHECK (failed IN (0, 1))
);

-- A participant's part in a draw. Kept, so that it can fetch the result later.
CREATE TABLE batch_offer (
    draw        BYTEA NOT NULL REFERENCES batch_draw (id),       -- fixed
    participant BYTEA NOT NULL REFERENCES participant (id),      -- fixed
    offered_at  BIGINT NOT NULL,                                  -- when it was last repeated
    offer       BYTEA NOT NULL,                                  -- as it was sent; fixed once the pool is
    reveal      BYTEA,                                           -- as it was sent
    PRIMARY KEY (draw, participant)
);

-- The batch that a member of a cohort has stated with its keys. Participants without a batch have no row.
CREATE TABLE assignment_batch (
    task        BYTEA NOT NULL,                                  -- fixed
    number      BIGINT NOT NULL,                                  -- fixed
    attempt     BIGINT NOT NULL,                                  -- fixed
    participant BYTEA NOT NULL,                                  -- fixed
    batch       BYTEA NOT NULL,                                  -- fixed
    PRIMARY KEY (task, number, attempt, participant),
    FOREIGN KEY (task, number, attempt, participant) REFERENCES assignment (task, number, attempt, participant)
);

-- The batch that a participant reports with its check-in; NULL: it has none. Not proven, unlike the one that it states with its keys.
ALTER TABLE check_in ADD COLUMN batch BYTEA CHECK (length(batch) = 32);
