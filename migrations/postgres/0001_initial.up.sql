-- Conventions: ids are UUIDs as 16-byte blobs, digests SHA-256 as 32-byte blobs, times milliseconds since 1970-01-01 UTC.
-- "Fixed" means: never changes once the row is there. Text is compared by its bytes
-- where an order matters, whatever the database's collation is; JSON is text, which comes back as it was written.

-- Whether a text is JSON: PostgreSQL has `IS JSON` from version 16.
CREATE FUNCTION json_valid(document TEXT) RETURNS BOOLEAN LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    RETURN document::json IS NOT NULL;
EXCEPTION WHEN invalid_text_representation THEN
    RETURN false;
END $$;

-- A model that is trained over many rounds.
CREATE TABLE task (
    id               BYTEA   NOT NULL PRIMARY KEY CHECK (length(id) = 16),             -- fixed
    name             TEXT    NOT NULL CHECK (length(name) BETWEEN 1 AND 64),           -- fixed; the name in the specification
    spec             TEXT    NOT NULL CHECK (json_valid(spec)),                        -- fixed; what the operator wrote, as JSON
    status           TEXT    NOT NULL CHECK (status IN ('ACTIVE', 'PAUSED', 'COMPLETED', 'CANCELLED', 'BUDGET_EXHAUSTED')),
    parameters       BIGINT  NOT NULL CHECK (parameters >= 0),                         -- fixed; elements of the flat vector
    created_at       BIGINT  NOT NULL,                                                 -- fixed
    rounds_completed BIGINT  NOT NULL CHECK (rounds_completed >= 0),                   -- rounds that published a version
    rounds_forfeited BIGINT  NOT NULL DEFAULT 0 CHECK (rounds_forfeited >= 0),         -- rounds without a sum whose inputs may have
                                                                                       -- been sent; the numbers are used up
    model_version    BIGINT  NOT NULL CHECK (model_version >= 0)                       -- the newest version
);
-- A name may be used again once its task is over.
CREATE UNIQUE INDEX task_live_name ON task (name) WHERE status IN ('ACTIVE', 'PAUSED');
CREATE INDEX task_name ON task (name, created_at);
CREATE INDEX task_created ON task (created_at, id);
CREATE INDEX task_active ON task (created_at, id) WHERE status = 'ACTIVE';

-- Every status a task entered. Rows are only added.
CREATE TABLE task_change (
    sequence BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,                          -- order of writing
    task     BYTEA   NOT NULL REFERENCES task (id),
    status   TEXT    NOT NULL CHECK (status IN ('ACTIVE', 'PAUSED', 'COMPLETED', 'CANCELLED', 'BUDGET_EXHAUSTED')), -- the status that began
    at       BIGINT  NOT NULL,                                                         -- when
    detail   TEXT                                                                      -- who or why, for people
);
CREATE INDEX task_change_task ON task_change (task, sequence);

-- An enrolled device or site.
CREATE TABLE participant (
    id                      BYTEA   NOT NULL PRIMARY KEY CHECK (length(id) = 16),      -- fixed
    name                    TEXT    COLLATE "C" NOT NULL UNIQUE,                       -- fixed; from the enrolment token
    labels                  TEXT    NOT NULL CHECK (json_valid(labels)),               -- JSON object of texts, from the token
    enrolled_at             BIGINT  NOT NULL,                                          -- fixed
    certificate_fingerprint BYTEA   NOT NULL UNIQUE CHECK (length(certificate_fingerprint) = 32), -- newest certificate, DER
    previous_fingerprint    BYTEA   UNIQUE CHECK (length(previous_fingerprint) = 32),  -- the certificate shown to get it
    certificate_expires_at  BIGINT  NOT NULL,                                          -- of the newest certificate
    revoked_at              BIGINT,                                                    -- set once, by an operator
    last_seen_at            BIGINT  NOT NULL                                           -- hint; written now and then
);

-- A secret that enrols one participant, once.
CREATE TABLE enrollment_token (
    id            BYTEA   NOT NULL PRIMARY KEY CHECK (length(id) = 16),                -- fixed
    secret_sha256 BYTEA   NOT NULL UNIQUE CHECK (length(secret_sha256) = 32),          -- fixed; the secret itself is not kept
    name          TEXT    NOT NULL,                                                    -- fixed; the participant's name to be
    labels        TEXT    NOT NULL CHECK (json_valid(labels)),                         -- fixed; the participant's labels to be
    created_at    BIGINT  NOT NULL,                                                    -- fixed
    expires_at    BIGINT  NOT NULL,                                                    -- fixed; from then on it enrols nobody
    used_at       BIGINT,                                                              -- set once
    used_by       BYTEA   REFERENCES participant (id) DEFERRABLE INITIALLY DEFERRED,   -- set once; whom it enrolled
    CHECK ((used_at IS NULL) = (used_by IS NULL))
);

-- A secret that an operator carries.
CREATE TABLE operator_token (
    id            BYTEA   NOT NULL PRIMARY KEY CHECK (length(id) = 16),                -- fixed
    secret_sha256 BYTEA   NOT NULL UNIQUE CHECK (length(secret_sha256) = 32),          -- fixed; the secret itself is not kept
    name          TEXT    NOT NULL,                                                    -- fixed; for people
    role          TEXT    NOT NULL,                                                    -- fixed; what it permits
    created_at    BIGINT  NOT NULL,                                                    -- fixed
    revoked_at    BIGINT                                                               -- set once
);

-- Participants that are ready to work now.
CREATE TABLE check_in (
    task          BYTEA   NOT NULL REFERENCES task (id),                               -- fixed
    participant   BYTEA   NOT NULL REFERENCES participant (id),                        -- fixed
    examples      BIGINT  NOT NULL CHECK (examples >= 0),                              -- training examples it says it has
    checked_in_at BIGINT  NOT NULL,                                                    -- when it last said so
    expires_at    BIGINT  NOT NULL,                                                    -- from then on it is not ready
    keys_round    BIGINT  CHECK (keys_round >= 1),                                     -- number of the round its keys are for
    keys_attempt  BIGINT  CHECK (keys_attempt >= 1),                                   -- attempt its keys are for
    keys          BYTEA   CHECK (length(keys) <= 4096),                                -- its public keys, as it sent them
    loss          BIGINT  CHECK (loss BETWEEN 0 AND 31),                               -- the training loss it volunteers, coarsely
    PRIMARY KEY (task, participant),
    CHECK ((keys_round IS NULL) = (keys IS NULL) AND (keys_attempt IS NULL) = (keys IS NULL))
);
CREATE INDEX check_in_participant ON check_in (participant);
CREATE INDEX check_in_expires ON check_in (expires_at);

-- One attempt at a round.
CREATE TABLE round (
    task          BYTEA   NOT NULL REFERENCES task (id),                               -- fixed
    number        BIGINT  NOT NULL CHECK (number >= 1),                                -- fixed; counts within the task
    attempt       BIGINT  NOT NULL CHECK (attempt >= 1),                               -- fixed; counts within the number
    state         TEXT    NOT NULL
        CHECK (state IN ('SELECTING', 'SHARING', 'COLLECTING', 'CONFIRMING', 'UNMASKING', 'AGGREGATING',
                         'COMPLETED', 'FAILED', 'CANCELLED')),
    base_version  BIGINT  NOT NULL CHECK (base_version >= 0),                          -- fixed; the version the cohort starts from
    limits        TEXT    NOT NULL CHECK (json_valid(limits)),                         -- JSON: min, max, deadline of each phase
    cohort        BIGINT  NOT NULL CHECK (cohort >= 0),                                -- participants assigned
    state_since   BIGINT  NOT NULL,                                                    -- when the present state began
    opened_at     BIGINT  NOT NULL,                                                    -- fixed
    failure       TEXT,                                                                -- code of the reason
    reported      BIGINT  NOT NULL DEFAULT 0 CHECK (reported >= 0),                    -- inputs admitted
    bytes_up      BIGINT  NOT NULL DEFAULT 0 CHECK (bytes_up >= 0),                    -- bytes of the inputs admitted
    bytes_down    BIGINT  NOT NULL DEFAULT 0 CHECK (bytes_down >= 0),                  -- bytes sent to the cohort
    metrics       TEXT    NOT NULL DEFAULT '[]' CHECK (json_valid(metrics)),           -- JSON list of {name, value, count}
    model_version BIGINT  CHECK (model_version >= 1),                                  -- the version it published
    PRIMARY KEY (task, number, attempt),
    CHECK ((state = 'FAILED') = (failure IS NOT NULL))
);
-- A task has one open round at most.
CREATE UNIQUE INDEX round_open ON round (task) WHERE state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED');

-- Every state an attempt entered. Rows are only added.
CREATE TABLE round_change (
    sequence BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,                          -- order of writing
    task     BYTEA   NOT NULL,
    number   BIGINT  NOT NULL,
    attempt  BIGINT  NOT NULL,
    state    TEXT    NOT NULL,                                                         -- the state that began
    at       BIGINT  NOT NULL,                                                         -- when
    count    BIGINT  NOT NULL,                                                         -- participants concerned
    FOREIGN KEY (task, number, attempt) REFERENCES round (task, number, attempt)
);
CREATE INDEX round_change_round ON round_change (task, number, attempt, sequence);

-- What an attempt sent to its cohort in each of its states.
CREATE TABLE round_traffic (
    task       BYTEA   NOT NULL,                                                       -- fixed
    number     BIGINT  NOT NULL,                                                       -- fixed
    attempt    BIGINT  NOT NULL,                                                       -- fixed
    state      TEXT    NOT NULL,                                                       -- fixed; the attempt's state when it sent
    bytes_down BIGINT  NOT NULL CHECK (bytes_down >= 0),                               -- part of the attempt's bytes_down
    PRIMARY KEY (task, number, attempt, state),
    FOREIGN KEY (task, number, attempt) REFERENCES round (task, number, attempt)
);

-- One participant's place in an attempt.
CREATE TABLE assignment (
    task        BYTEA   NOT NULL,                                                      -- fixed
    number      BIGINT  NOT NULL,                                                      -- fixed
    attempt     BIGINT  NOT NULL,                                                      -- fixed
    participant BYTEA   NOT NULL REFERENCES participant (id),                          -- fixed
    state       TEXT    NOT NULL CHECK (state IN
        ('ASSIGNED', 'WORKING', 'REPORTED', 'ABANDONED', 'EXCUSED', 'REVOKED', 'LATE', 'RELEASED')),
    state_since BIGINT  NOT NULL,                                                      -- when the present state began
    detail      TEXT    CHECK (octet_length(detail) <= 200),                           -- the participant's words or a code
    assigned_at BIGINT  NOT NULL,                                                      -- fixed; when it was drawn
    dropped_in  TEXT    CHECK (dropped_in IN                                           -- set once; the round's state when it was lost
        ('SELECTING', 'SHARING', 'COLLECTING', 'CONFIRMING', 'UNMASKING', 'AGGREGATING')),
    PRIMARY KEY (task, number, attempt, participant),
    FOREIGN KEY (task, number, attempt) REFERENCES round (task, number, attempt)
);
CREATE INDEX assignment_state ON assignment (task, number, attempt, state);
-- Small: an assignment is in these states only while its round runs.
CREATE INDEX assignment_pending ON assignment (participant) WHERE state IN ('ASSIGNED', 'WORKING');

-- Every state an assignment entered. Rows are only added.
CREATE TABLE assignment_change (
    sequence    BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,                       -- order of writing
    task        BYTEA   NOT NULL,
    number      BIGINT  NOT NULL,
    attempt     BIGINT  NOT NULL,
    participant BYTEA   NOT NULL,
    state       TEXT    NOT NULL,                                                      -- the state that began
    at          BIGINT  NOT NULL,                                                      -- when
    detail      TEXT,                                                                  -- as in the assignment
    FOREIGN KEY (task, number, attempt, participant) REFERENCES assignment (task, number, attempt, participant)
);
CREATE INDEX assignment_change_assignment ON assignment_change (task, number, attempt, participant, sequence);

-- How often and when last a participant was assigned in a task: a summary of its assignments, kept so that drawing a
-- cohort does not read the whole past.
CREATE TABLE participation (
    task        BYTEA   NOT NULL REFERENCES task (id),                                 -- fixed
    participant BYTEA   NOT NULL REFERENCES participant (id),                          -- fixed
    count       BIGINT  NOT NULL CHECK (count >= 1),                                   -- assignments, of all attempts
    last_number BIGINT  NOT NULL,                                                      -- round of the last one
    last_at     BIGINT  NOT NULL,                                                      -- when it was drawn
    last_duration_ms BIGINT  CHECK (last_duration_ms >= 0),                            -- from the draw to the last input it sent
    PRIMARY KEY (task, participant)
);
CREATE INDEX participation_participant ON participation (participant);

-- An input that was accepted and counts.
CREATE TABLE admitted (
    task        BYTEA   NOT NULL,                                                      -- fixed
    number      BIGINT  NOT NULL,                                                      -- fixed
    attempt     BIGINT  NOT NULL,                                                      -- fixed
    participant BYTEA   NOT NULL,                                                      -- fixed
    sha256      BYTEA   NOT NULL CHECK (length(sha256) = 32),                          -- fixed; digest of the body, address of its blob
    bytes       BIGINT  NOT NULL CHECK (bytes >= 0),                                   -- fixed; size of the body
    accepted_at BIGINT  NOT NULL,                                                      -- fixed
    folded      BIGINT  NOT NULL CHECK (folded IN (0, 1)),                             -- 1 once the partial sum holds it
    anomaly     DOUBLE PRECISION CHECK (anomaly >= 0 AND anomaly <> 'NaN'),          -- how unusual a robust rule found it
    PRIMARY KEY (task, number, attempt, participant),
    FOREIGN KEY (task, number, attempt, participant) REFERENCES assignment (task, number, attempt, participant)
);
CREATE INDEX admitted_unfolded ON admitted (task, number, attempt, accepted_at, participant) WHERE folded = 0;

-- How far the secure aggregation of an attempt has come. An attempt without a row has none, or is done with it.
CREATE TABLE session (
    task       BYTEA   NOT NULL,                                                       -- fixed
    number     BIGINT  NOT NULL,                                                       -- fixed
    attempt    BIGINT  NOT NULL,                                                       -- fixed
    updated_at BIGINT  NOT NULL,                                                       -- when the phase was written
    phase      BYTEA   NOT NULL,                                                       -- the server's side of the session
    PRIMARY KEY (task, number, attempt),
    FOREIGN KEY (task, number, attempt) REFERENCES round (task, number, attempt)
);

-- A message of secure aggregation that counts. Rows are only added; the message itself goes when the session is over.
CREATE TABLE session_message (
    task        BYTEA   NOT NULL,                                                      -- fixed
    number      BIGINT  NOT NULL,                                                      -- fixed
    attempt     BIGINT  NOT NULL,                                                      -- fixed
    kind        TEXT    NOT NULL CHECK (kind IN ('SHARES', 'INPUT', 'COMPLAINT', 'CONSISTENCY', 'UNMASKING')), -- fixed
    participant BYTEA   NOT NULL,                                                      -- fixed; who sent it
    sha256      BYTEA   NOT NULL CHECK (length(sha256) = 32),                          -- fixed; digest of what was sent
    bytes       BIGINT  NOT NULL CHECK (bytes >= 0),                                   -- fixed; size of what was sent
    received_at BIGINT  NOT NULL,                                                      -- fixed
    message     BYTEA,                                                                 -- as it is kept, perhaps sealed; last, being long
    PRIMARY KEY (task, number, attempt, kind, participant),
    FOREIGN KEY (task, number, attempt, participant) REFERENCES assignment (task, number, attempt, participant)
);

-- Whom a phase waits for, while the attempt is in that phase.
CREATE VIEW unanswered AS
    SELECT task, number, attempt, participant, 'SHARING' AS phase FROM assignment AS place
    WHERE state IN ('ASSIGNED', 'WORKING')
      AND NOT EXISTS (SELECT 1 FROM session_message
                      WHERE (task, number, attempt, kind, participant)
                          = (place.task, place.number, place.attempt, 'SHARES', place.participant))
UNION ALL
    SELECT task, number, attempt, participant, 'COLLECTING' FROM assignment
    WHERE state IN ('ASSIGNED', 'WORKING')
UNION ALL
    SELECT task, number, attempt, participant, 'CONFIRMING' FROM assignment AS place
    WHERE state = 'REPORTED' AND dropped_in IS NULL
      AND NOT EXISTS (SELECT 1 FROM session_message
                      WHERE (task, number, attempt, kind, participant)
                          = (place.task, place.number, place.attempt, 'CONSISTENCY', place.participant))
UNION ALL
    SELECT task, number, attempt, participant, 'UNMASKING' FROM assignment AS place
    WHERE state = 'REPORTED' AND dropped_in IS NULL
      AND EXISTS (SELECT 1 FROM session_message
                  WHERE (task, number, attempt, kind, participant)
                      = (place.task, place.number, place.attempt, 'CONSISTENCY', place.participant))
      AND NOT EXISTS (SELECT 1 FROM session_message
                      WHERE (task, number, attempt, kind, participant)
                          = (place.task, place.number, place.attempt, 'UNMASKING', place.participant));

-- Places that a round still needs. Under secure aggregation that is so after the input was accepted, until everything that
-- opens the sum was answered. The second half starts from the sessions, which are few.
CREATE VIEW pending_place AS
    SELECT place.* FROM assignment AS place JOIN round USING (task, number, attempt)
    WHERE place.state IN ('ASSIGNED', 'WORKING') AND round.state IN ('SHARING', 'COLLECTING')
UNION ALL
    SELECT place.*
    FROM session JOIN round USING (task, number, attempt) JOIN assignment AS place USING (task, number, attempt)
    WHERE place.state = 'REPORTED' AND place.dropped_in IS NULL
      AND round.state IN ('COLLECTING', 'CONFIRMING', 'UNMASKING')
      AND NOT EXISTS (SELECT 1 FROM session_message
                      WHERE (task, number, attempt, kind, participant)
                          = (place.task, place.number, place.attempt, 'UNMASKING', place.participant))
      AND (round.state <> 'UNMASKING'
           OR EXISTS (SELECT 1 FROM session_message
                      WHERE (task, number, attempt, kind, participant)
                          = (place.task, place.number, place.attempt, 'CONSISTENCY', place.participant)));

-- The sum of every input marked as folded.
CREATE TABLE partial_sum (
    task    BYTEA   NOT NULL,                                                          -- fixed
    number  BIGINT  NOT NULL,                                                          -- fixed
    attempt BIGINT  NOT NULL,                                                          -- fixed
    blob    BYTEA   NOT NULL CHECK (length(blob) = 32),                                -- digest: address of the sum
    inputs  BIGINT  NOT NULL CHECK (inputs >= 0),                                      -- how many inputs it holds
    PRIMARY KEY (task, number, attempt),
    FOREIGN KEY (task, number, attempt) REFERENCES round (task, number, attempt)
);

-- The one sum of an attempt that was released. Rows are only added.
CREATE TABLE noised_sum (
    task            BYTEA   NOT NULL,
    number          BIGINT  NOT NULL,
    attempt         BIGINT  NOT NULL,
    blob            BYTEA   NOT NULL CHECK (length(blob) = 32),                        -- digest: address of the sum
    participants    BIGINT  NOT NULL CHECK (participants >= 0),                        -- how many inputs it holds
    created_at      BIGINT  NOT NULL,                                                  -- when it was released
    sum_device      TEXT,                                                              -- what added the inputs
    unmask_device   TEXT,                                                              -- what made the masks that were taken off
    sum_ms          BIGINT  CHECK (sum_ms >= 0),                                       -- time of adding
    unmask_ms       BIGINT  CHECK (unmask_ms >= 0),                                    -- time of taking the masks off
    keystream_bytes BIGINT  CHECK (keystream_bytes >= 0),                              -- bytes of masks that were made
    PRIMARY KEY (task, number, attempt),
    FOREIGN KEY (task, number, attempt) REFERENCES round (task, number, attempt),
    CHECK ((sum_device IS NULL) = (unmask_device IS NULL) AND (sum_device IS NULL) = (sum_ms IS NULL)
           AND (sum_device IS NULL) = (unmask_ms IS NULL) AND (sum_device IS NULL) = (keystream_bytes IS NULL))
);

-- A published set of parameters. Rows are only added.
CREATE TABLE model_version (
    task       BYTEA   NOT NULL REFERENCES task (id),
    version    BIGINT  NOT NULL CHECK (version >= 0),                                  -- 0 is the initial model
    sha256     BYTEA   NOT NULL CHECK (length(sha256) = 32),                           -- of the safetensors file; address of its blob
    bytes      BIGINT  NOT NULL CHECK (bytes >= 0),                                    -- size of the file
    round      BIGINT,                                                                 -- number of the round that made it
    parent     BIGINT,                                                                 -- the version it was made from
    created_at BIGINT  NOT NULL,                                                       -- when it was published
    PRIMARY KEY (task, version),
    FOREIGN KEY (task, parent) REFERENCES model_version (task, version),
    CHECK ((version = 0) = (round IS NULL)),
    CHECK (parent < version)
);

-- Who may do a piece of background work just now.
CREATE TABLE lease (
    name        TEXT    NOT NULL PRIMARY KEY,                                          -- which work
    holder      BYTEA   NOT NULL CHECK (length(holder) = 16),                          -- UUID of the worker
    acquired_at BIGINT  NOT NULL,                                                      -- when it was taken or prolonged
    expires_at  BIGINT  NOT NULL                                                       -- from then on anybody may take it
);

-- Answers to requests that may come again.
CREATE TABLE idempotency_key (
    scope          TEXT    NOT NULL,                                                   -- whose key, and for what
    key            TEXT    NOT NULL,                                                   -- as the caller gave it
    request_sha256 BYTEA   NOT NULL CHECK (length(request_sha256) = 32),               -- of the request
    status         BIGINT  NOT NULL CHECK (status BETWEEN 100 AND 599),                -- HTTP status of the answer
    body           BYTEA   NOT NULL,                                                   -- body of the answer
    expires_at     BIGINT  NOT NULL,                                                   -- from then on the key may be forgotten
    PRIMARY KEY (scope, key)
);
CREATE INDEX idempotency_key_expires ON idempotency_key (expires_at);
