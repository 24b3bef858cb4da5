-- What changed, when and by whom. A row is written by the transaction that makes the change, without a position; a background step
-- gives positions and chains the rows by their hashes.
CREATE TABLE event (
    id       INTEGER PRIMARY KEY,                                                      -- fixed; order of writing
    at       INTEGER NOT NULL,                                                         -- fixed
    kind     TEXT    NOT NULL,                                                         -- fixed; name of the kind of event
    task     BLOB,                                                                     -- fixed; what it is about, if that is a task
    number   INTEGER CHECK (task IS NOT NULL OR number IS NULL),                       -- fixed; the round, if it is about one
    attempt  INTEGER CHECK ((attempt IS NULL) = (number IS NULL)),                     -- fixed
    actor    TEXT    NOT NULL CHECK (json_valid(actor)),                               -- fixed; who made the change
    body     TEXT    NOT NULL CHECK (json_valid(body)),                                -- fixed; facts by name; nothing secret
    position INTEGER CHECK (position > 0),                                             -- set once; place in the log, from 1 without gaps
    hash     BLOB    CHECK (length(hash) = 32 AND (position IS NULL) = (hash IS NULL)) -- set once; SHA-256 over the hash before it and the row
) STRICT;
CREATE INDEX event_unnumbered ON event (id) WHERE position IS NULL;
CREATE UNIQUE INDEX event_position ON event (position) WHERE position IS NOT NULL;
CREATE INDEX event_task ON event (task, position) WHERE position IS NOT NULL AND task IS NOT NULL;

CREATE TRIGGER event_stays BEFORE UPDATE ON event
WHEN OLD.position IS NOT NULL OR NEW.id IS NOT OLD.id OR NEW.at IS NOT OLD.at OR NEW.kind IS NOT OLD.kind
  OR NEW.task IS NOT OLD.task OR NEW.number IS NOT OLD.number OR NEW.attempt IS NOT OLD.attempt
  OR NEW.actor IS NOT OLD.actor OR NEW.body IS NOT OLD.body
BEGIN SELECT RAISE(ABORT, 'an event is never changed'); END;
CREATE TRIGGER event_is_kept BEFORE DELETE ON event
BEGIN SELECT RAISE(ABORT, 'an event is never removed'); END;

-- Signed statements that the log had this hash at this position.
CREATE TABLE audit_head (
    position   INTEGER PRIMARY KEY,                                                    -- fixed
    hash       BLOB    NOT NULL CHECK (length(hash) = 32),                             -- fixed; that of the event at the position
    at         INTEGER NOT NULL,                                                       -- fixed; when it was signed
    public_key BLOB    NOT NULL CHECK (length(public_key) = 32),                       -- fixed; Ed25519
    signature  BLOB    NOT NULL CHECK (length(signature) = 64)                         -- fixed; over position, hash and time
) STRICT;
