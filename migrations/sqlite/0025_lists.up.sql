-- Lists that are narrowed down to what somebody did: by the id that the log has of whoever it was, and by the name of a token. What the
-- coordinator itself did, most of the log, has neither.

CREATE INDEX event_actor ON event (coalesce(actor ->> 'token', actor ->> 'participant', actor ->> 'subject_sha256'), position)
    WHERE position IS NOT NULL AND coalesce(actor ->> 'token', actor ->> 'participant', actor ->> 'subject_sha256') IS NOT NULL;
CREATE INDEX event_actor_name ON event ((actor ->> 'name'), position) WHERE position IS NOT NULL AND (actor ->> 'name') IS NOT NULL;
