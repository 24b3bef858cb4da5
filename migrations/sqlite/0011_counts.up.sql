-- What was counted in an attempt's row is counted from other rows, so that writers do not queue on it.

ALTER TABLE round DROP COLUMN reported;
ALTER TABLE round DROP COLUMN bytes_up;
ALTER TABLE round DROP COLUMN bytes_down;

-- What an attempt sent to its cohort in each of its states: the sum over parts.
CREATE TABLE traffic (
    task       BLOB    NOT NULL,                                                       -- fixed
    number     INTEGER NOT NULL,                                                       -- fixed
    attempt    INTEGER NOT NULL,                                                       -- fixed
    state      TEXT    NOT NULL,                                                       -- fixed; the attempt's state when it sent
    part       INTEGER NOT NULL CHECK (part BETWEEN 0 AND 15),                         -- fixed; by time, so that two writers seldom meet
    bytes_down INTEGER NOT NULL CHECK (bytes_down >= 0),
    PRIMARY KEY (task, number, attempt, state, part),
    FOREIGN KEY (task, number, attempt) REFERENCES round (task, number, attempt)
) STRICT, WITHOUT ROWID;
INSERT INTO traffic SELECT task, number, attempt, state, 0, bytes_down FROM round_traffic;
DROP TABLE round_traffic;
ALTER TABLE traffic RENAME TO round_traffic;
