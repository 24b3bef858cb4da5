-- Operator tokens that end by themselves.
ALTER TABLE operator_token ADD COLUMN expires_at BIGINT; -- fixed; from then on it counts no more; NULL: never
