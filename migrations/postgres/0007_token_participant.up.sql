-- A token that lets a participant come back whose certificate has ended.
ALTER TABLE enrollment_token ADD COLUMN participant BYTEA REFERENCES participant (id); -- fixed; whom it enrols anew; NULL: somebody new
