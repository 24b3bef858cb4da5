-- Lists that are narrowed down to what somebody did: by the id that the log has of whoever it was, and by the name of a token. What the
-- coordinator itself did, most of the log, has neither.

CREATE INDEX event_actor ON event (
    coalesce(CAST(actor AS jsonb) ->> 'token', CAST(actor AS jsonb) ->> 'participant', CAST(actor AS jsonb) ->> 'subject_sha256'),
    position
) WHERE position IS NOT NULL
    AND coalesce(CAST(actor AS jsonb) ->> 'token', CAST(actor AS jsonb) ->> 'participant', CAST(actor AS jsonb) ->> 'subject_sha256')
        IS NOT NULL;
CREATE INDEX event_actor_name ON event ((CAST(actor AS jsonb) ->> 'name'), position)
    WHERE position IS NOT NULL AND (CAST(actor AS jsonb) ->> 'name') IS NOT NULL;

-- Devices are listed in the order of the bytes of their names, as coordinators are, whatever language the database speaks.
ALTER TABLE noised_sum ALTER COLUMN sum_device TYPE TEXT COLLATE "C", ALTER COLUMN unmask_device TYPE TEXT COLLATE "C";
