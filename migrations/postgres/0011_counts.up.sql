-- What was counted in an attempt's row is counted from other rows, so that writers do not queue on it.

ALTER TABLE round DROP COLUMN reported;
ALTER TABLE round DROP COLUMN bytes_up;
ALTER TABLE round DROP COLUMN bytes_down;

-- What an attempt sent to its cohort in each of its states: the sum over parts.
ALTER TABLE round_traffic ADD COLUMN part BIGINT NOT NULL DEFAULT 0 CHECK (part BETWEEN 0 AND 15); -- fixed; by time, so that two writers seldom meet
ALTER TABLE round_traffic ALTER COLUMN part DROP DEFAULT;
ALTER TABLE round_traffic DROP CONSTRAINT round_traffic_pkey;
ALTER TABLE round_traffic ADD PRIMARY KEY (task, number, attempt, state, part);

-- A participant's place is looked for at each of its polls; SQLite finds those that have reported from the open sessions on.
CREATE INDEX assignment_reported ON assignment (participant, task, number, attempt) WHERE state = 'REPORTED' AND dropped_in IS NULL;
