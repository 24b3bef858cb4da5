-- What changed, when and by whom. A row is written by the transaction that makes the change, without a position; a background step
-- gives positions and chains the rows by their hashes.
CREATE TABLE event (
    id       BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,                         -- fixed; order of writing, not of commits
    at       BIGINT  NOT NULL,                                                         -- fixed
    kind     TEXT    NOT NULL,                                                         -- fixed; name of the kind of event
    task     BYTEA,                                                                    -- fixed; what it is about, if that is a task
    number   BIGINT  CHECK (task IS NOT NULL OR number IS NULL),                       -- fixed; the round, if it is about one
    attempt  BIGINT  CHECK ((attempt IS NULL) = (number IS NULL)),                     -- fixed
    actor    TEXT    NOT NULL CHECK (json_valid(actor)),                                       -- fixed; who made the change
    body     TEXT    NOT NULL CHECK (json_valid(body)),                                        -- fixed; facts by name; nothing secret
    position BIGINT  CHECK (position > 0),                                             -- set once; place in the log, from 1 without gaps
    hash     BYTEA   CHECK (length(hash) = 32),                                        -- set once; SHA-256 over the hash before it and the row
    CHECK ((position IS NULL) = (hash IS NULL))
);
CREATE INDEX event_unnumbered ON event (id) WHERE position IS NULL;
CREATE UNIQUE INDEX event_position ON event (position) WHERE position IS NOT NULL;
CREATE INDEX event_task ON event (task, position) WHERE position IS NOT NULL AND task IS NOT NULL;

CREATE FUNCTION event_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF OLD.position IS NULL AND (NEW.id, NEW.at, NEW.kind, NEW.actor, NEW.body) = (OLD.id, OLD.at, OLD.kind, OLD.actor, OLD.body)
           AND (NEW.task, NEW.number, NEW.attempt) IS NOT DISTINCT FROM (OLD.task, OLD.number, OLD.attempt) THEN
            RETURN NEW;
        END IF;
        RAISE 'an event is never changed' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RAISE 'an event is never removed' USING ERRCODE = 'integrity_constraint_violation';
END
$$;
CREATE TRIGGER event_stays BEFORE UPDATE OR DELETE ON event FOR EACH ROW EXECUTE FUNCTION event_stays();
CREATE TRIGGER event_is_kept BEFORE TRUNCATE ON event FOR EACH STATEMENT EXECUTE FUNCTION event_stays();

-- Signed statements that the log had this hash at this position.
CREATE TABLE audit_head (
    position   BIGINT  PRIMARY KEY,                                                    -- fixed
    hash       BYTEA   NOT NULL CHECK (length(hash) = 32),                             -- fixed; that of the event at the position
    at         BIGINT  NOT NULL,                                                       -- fixed; when it was signed
    public_key BYTEA   NOT NULL CHECK (length(public_key) = 32),                       -- fixed; Ed25519
    signature  BYTEA   NOT NULL CHECK (length(signature) = 64)                         -- fixed; over position, hash and time
);
