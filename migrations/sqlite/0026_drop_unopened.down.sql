-- Sessions that ended without a sum after inputs had left, and who has said that it never answered in one.

-- The roster that members must be shown again to see that a session was never opened.
CREATE TABLE unopened_session (
    task         BLOB    NOT NULL,                                                     -- fixed
    number       INTEGER NOT NULL,                                                     -- fixed
    attempt      INTEGER NOT NULL,                                                     -- fixed
    cohort_group INTEGER NOT NULL CHECK (cohort_group >= 0),                           -- fixed; 0 where there are no groups
    needed       INTEGER NOT NULL CHECK (needed >= 1),                                 -- fixed; how many statements prove it
    roster       BLOB    NOT NULL,                                                     -- fixed; as it was announced
    PRIMARY KEY (task, number, attempt, cohort_group),
    FOREIGN KEY (task, number, attempt) REFERENCES round (task, number, attempt)
) STRICT;

-- That a participant left a session for good and never answered in it: signed, and never taken back.
CREATE TABLE abort_statement (
    task         BLOB    NOT NULL,                                                     -- fixed
    number       INTEGER NOT NULL,                                                     -- fixed
    attempt      INTEGER NOT NULL,                                                     -- fixed
    participant  BLOB    NOT NULL,                                                     -- fixed
    cohort_group INTEGER NOT NULL CHECK (cohort_group >= 0),                           -- fixed; 0 where there are no groups
    received_at  INTEGER NOT NULL,                                                     -- fixed
    statement    BLOB    NOT NULL,                                                     -- fixed; as it was sent
    PRIMARY KEY (task, number, attempt, participant),
    FOREIGN KEY (task, number, attempt, participant) REFERENCES assignment (task, number, attempt, participant)
) STRICT, WITHOUT ROWID;
