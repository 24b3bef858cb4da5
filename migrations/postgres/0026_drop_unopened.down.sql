-- Sessions that ended without a sum after inputs had left, and who has said that it never answered in one.

-- The roster that members must be shown again to see that a session was never opened.
CREATE TABLE unopened_session (
    task         BYTEA   NOT NULL,                                                     -- fixed
    number       BIGINT  NOT NULL,                                                     -- fixed
    attempt      BIGINT  NOT NULL,                                                     -- fixed
    cohort_group BIGINT  NOT NULL CHECK (cohort_group >= 0),                           -- fixed; 0 where there are no groups
    needed       BIGINT  NOT NULL CHECK (needed >= 1),                                 -- fixed; how many statements prove it
    roster       BYTEA   NOT NULL,                                                     -- fixed; as it was announced
    PRIMARY KEY (task, number, attempt, cohort_group),
    FOREIGN KEY (task, number, attempt) REFERENCES round (task, number, attempt)
);

-- That a participant left a session for good and never answered in it: signed, and never taken back.
CREATE TABLE abort_statement (
    task         BYTEA   NOT NULL,                                                     -- fixed
    number       BIGINT  NOT NULL,                                                     -- fixed
    attempt      BIGINT  NOT NULL,                                                     -- fixed
    participant  BYTEA   NOT NULL,                                                     -- fixed
    cohort_group BIGINT  NOT NULL CHECK (cohort_group >= 0),                           -- fixed; 0 where there are no groups
    received_at  BIGINT  NOT NULL,                                                     -- fixed
    statement    BYTEA   NOT NULL,                                                     -- fixed; as it was sent
    PRIMARY KEY (task, number, attempt, participant),
    FOREIGN KEY (task, number, attempt, participant) REFERENCES assignment (task, number, attempt, participant)
);
