-- Operator tokens that end by themselves.
ALTER TABLE operator_token ADD COLUMN expires_at INTEGER; -- fixed; from then on it counts no more; NULL: never
