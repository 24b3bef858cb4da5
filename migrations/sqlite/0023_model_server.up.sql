-- What servers of models said of themselves last: each row is replaced by the next report, and ends by itself.

CREATE TABLE model_server (
    task       BLOB    NOT NULL REFERENCES task (id),                                  -- fixed; whose model it serves
    name       TEXT    NOT NULL CHECK (length(name) BETWEEN 1 AND 128),                -- fixed; as it calls itself
    report     TEXT    NOT NULL CHECK (length(report) <= 16384),                       -- JSON of the last report; opaque here
    told_at    INTEGER NOT NULL,                                                       -- when that came
    expires_at INTEGER NOT NULL CHECK (expires_at > told_at),                          -- from then on it counts no more
    PRIMARY KEY (task, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX model_server_by_end ON model_server (expires_at);
