-- Training ahead of rounds: who was told to train from which version, and whose finished updates a round aggregates.

-- The training a participant was given last, in one task.
CREATE TABLE training (
    task         BYTEA   NOT NULL REFERENCES task (id),                                -- fixed
    participant  BYTEA   NOT NULL REFERENCES participant (id),                         -- fixed
    serial       BIGINT  NOT NULL CHECK (serial >= 1),                                 -- counts its trainings in the task
    base_version BIGINT  NOT NULL CHECK (base_version >= 0),                           -- the version it starts from
    granted_at   BIGINT  NOT NULL,                                                     -- when it was given
    expires_at   BIGINT  NOT NULL,                                                     -- from then on nobody counts on it
    is_over      BIGINT  NOT NULL DEFAULT 0 CHECK (is_over IN (0, 1)),                 -- 1: its update is in a sum
    PRIMARY KEY (task, participant)
);
CREATE INDEX training_open ON training (task) WHERE is_over = 0;

-- What a participant says with its check-in of a training it was given; NULL: nothing.
ALTER TABLE check_in ADD COLUMN training BIGINT  CHECK (training >= 0);                -- serial of the training
ALTER TABLE check_in ADD COLUMN is_ready BIGINT  CHECK (is_ready IN (0, 1));           -- 1: it holds the finished update

-- Which updates an attempt aggregates that were trained ahead of it.
CREATE TABLE buffered (
    task         BYTEA   NOT NULL,                                                     -- fixed
    number       BIGINT  NOT NULL,                                                     -- fixed
    attempt      BIGINT  NOT NULL,                                                     -- fixed
    participant  BYTEA   NOT NULL,                                                     -- fixed
    serial       BIGINT  NOT NULL CHECK (serial >= 1),                                 -- fixed; which training
    base_version BIGINT  NOT NULL CHECK (base_version >= 0),                           -- fixed; the version it started from
    PRIMARY KEY (task, number, attempt, participant),
    FOREIGN KEY (task, number, attempt, participant) REFERENCES assignment (task, number, attempt, participant)
);
